"""Features of many images in one file, never whole in memory."""

from collections.abc import Callable, Iterable, Iterator
import itertools
import os
import pathlib
import tempfile

import numpy as np

from vit_jax.runtime import errors
from vit_jax.runtime import files

Row = tuple[str, np.ndarray]

_ROWS = 1024  # Rows of a Parquet file that are written at once.


def write(rows: Iterable[Row], output: str) -> int:
  """Writes names and float32 features, whole or not at all; returns the row count.

  An .npz has `names` [N] and `features` [N, ...], a .parquet a row an image.

  Raises:
    errors.UserError: if the file cannot be written, or there are no rows.
  """
  path = files.output_path(output, _WRITERS)
  with (
    errors.writing(f'output={output}'),
    files.replaced_file(path) as temporary,
  ):
    count = _WRITERS[path.suffix](iter(rows), temporary)
    if not count:
      raise errors.UserError('None of the images can be decoded.')
  return count


def _write_npz(rows: Iterator[Row], path: pathlib.Path) -> int:
  # The header has the number of rows, which is known when the last one comes.
  names = []
  with tempfile.TemporaryFile(dir=path.parent) as raw, open(path, 'wb') as f:
    for name, row in rows:
      names.append(name)
      raw.write(row.astype('<f4').tobytes())
    if names:
      raw.flush()
      features = np.memmap(raw, '<f4', 'r', shape=(len(names), *row.shape))
      np.savez(f, features=features, names=np.array(names))
  return len(names)


def _write_parquet(rows: Iterator[Row], path: pathlib.Path) -> int:
  import pyarrow as pa  # Imported late: it takes time.
  import pyarrow.parquet as pq

  count, writer = 0, None
  try:
    while chunk := list(itertools.islice(rows, _ROWS)):
      names, features = zip(*chunk, strict=True)
      # Parquet holds UTF-8; names of files may hold other bytes.
      text = [os.fsencode(x).decode(errors='backslashreplace') for x in names]
      column = pa.FixedShapeTensorArray.from_numpy_ndarray(np.stack(features))
      table = pa.table({'name': pa.array(text), 'features': column})
      writer = writer or pq.ParquetWriter(path, table.schema)
      writer.write_table(table)
      count += len(names)
  finally:
    if writer:
      writer.close()
  return count


_WRITERS: dict[str, Callable[[Iterator[Row], pathlib.Path], int]] = {
  '.npz': _write_npz,
  '.parquet': _write_parquet,
}
