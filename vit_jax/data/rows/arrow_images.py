"""Images in Arrow and Parquet files, read by row.

Those of Arrow files are read from the mapped file. Parquet files compress them in
large groups, so they are copied once, into Arrow files in the cache of this user.
"""

from collections.abc import Iterator, Sequence
import contextlib
import functools
import hashlib
import os
import pathlib
from typing import Any

from absl import logging
import numpy as np
import platformdirs

from vit_jax.data.rows import repositories
from vit_jax.runtime import errors
from vit_jax.runtime import files

_ROWS = 100  # Images that are copied at once.


class Images(Sequence[Any]):
  """Images in a column of files, by row: bytes, a path, or None.

  Other processes get the names of the files alone.
  """

  def __init__(
    self,
    paths: Sequence[str],
    column: str,
    root: str,
    rows: Sequence[int] | None = None,
  ):
    """Takes files, and the folder that paths in `column` are relative to.

    `rows` are some rows of all files together, in an order of their own.
    """
    self._paths, self._column, self._root = paths, column, root
    self._rows = None if rows is None else np.array(rows)

  def __getstate__(self) -> dict[str, Any]:
    return {k: v for k, v in self.__dict__.items() if k != '_values'}

  def __len__(self) -> int:
    return len(self._values[0] if self._rows is None else self._rows)

  def __getitem__(self, index: Any) -> Any:
    row = index if self._rows is None else int(self._rows[index])
    data, paths = self._values
    value = data[row].as_py()
    path = paths[row].as_py() if value is None and paths is not None else None
    return os.path.join(self._root, path) if path else value

  def chosen(self, rows: Sequence[int]) -> 'Images':
    """Returns some rows of all."""
    return Images(self._paths, self._column, self._root, rows)

  def first_missing(self) -> int | None:
    """Returns the first row of all without an image."""
    from pyarrow import compute  # Imported late: only tables need it.

    data, paths = self._values
    missing = data.is_null()
    if paths is not None:
      missing = compute.and_(missing, paths.is_null())
    row = compute.index(missing, True).as_py()
    return None if row < 0 else row

  @functools.cached_property
  def _values(self) -> tuple[Any, Any]:
    """Returns the bytes and, if there are any, the paths."""
    import pyarrow as pa  # Imported late: only tables need it.
    from pyarrow import compute

    parts: list[Any] = []
    kind = None
    for path in self._paths:
      is_parquet = path.lower().endswith(repositories.PARQUET)
      file = _copied(path, self._column) if is_parquet else path
      column = mapped(file)[self._column]
      parts, kind = parts + column.chunks, column.type
    with reading(errors.some(self._paths)):
      column = pa.chunked_array(parts, kind)
    if not pa.types.is_struct(column.type):
      return column, None
    has_paths = 'path' in column.type.names
    paths = compute.struct_field(column, 'path') if has_paths else None
    return compute.struct_field(column, 'bytes'), paths


def has_bytes(kind: Any) -> bool:
  """Whether a type is bytes, or what `datasets` writes: {bytes, path}."""
  import pyarrow as pa  # Imported late: only tables need it.

  if pa.types.is_struct(kind):
    return 'bytes' in kind.names
  is_bytes = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
  )
  return any(test(kind) for test in is_bytes)


def mapped(path: pathlib.Path | str) -> Any:
  """Returns the table of an Arrow file, whose pages are read when they are used."""
  import pyarrow as pa  # Imported late: only tables need it.

  with reading(path):
    return pa.ipc.open_stream(pa.memory_map(os.fspath(path))).read_all()


def _copied(path: str, column: str) -> pathlib.Path:
  """Returns an Arrow file with a column of a Parquet file, made once."""
  import pyarrow as pa  # Imported late: only tables need it.
  from pyarrow import parquet

  status = os.stat(path)
  name = _hash(os.path.abspath(path), column)
  now = _hash(status.st_size, status.st_mtime_ns)
  folder = platformdirs.user_cache_path('vit_jax') / 'arrow'
  copy = folder / f'{name}-{now}.arrow'
  if copy.is_file():
    return copy
  logging.info('Copying the images of %s to %s, once.', path, copy)
  try:
    with files.replaced_file(copy) as temporary:
      source = parquet.ParquetFile(path)
      kept = pa.schema([source.schema_arrow.field(column)])
      with pa.ipc.new_stream(os.fspath(temporary), kept) as target:
        for batch in source.iter_batches(_ROWS, columns=[column]):
          target.write_batch(batch)
  except (OSError, pa.ArrowException) as e:
    raise errors.UserError(
      f'The images of {path} cannot be copied to {folder}: {errors.first_line(e)}.'
      f' XDG_CACHE_HOME can name another folder.'
    ) from e
  for old in folder.glob(f'{name}-*.arrow'):
    if old != copy:  # The file has changed.
      old.unlink(missing_ok=True)
  return copy


def _hash(*facts: Any) -> str:
  return hashlib.sha256(repr(facts).encode()).hexdigest()[:24]


@contextlib.contextmanager
def reading(path: os.PathLike | str) -> Iterator[None]:
  """Turns an error of reading a table into one line."""
  import pyarrow as pa  # Imported late: only tables need it.

  try:
    yield
  except (OSError, pa.ArrowException) as e:
    reason = getattr(e, 'strerror', None) or errors.first_line(e)
    raise errors.UserError(f'{path} cannot be read: {reason}') from e
