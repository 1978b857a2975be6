"""Writes the features (embeddings) of images to a file, as they come.

vit-jax features --model=/tmp/run/artifact --output=features.npz FOLDER...

An .npz has `features` float32 [N, D] and `names` [N], a .parquet, which needs
pip install 'vit_jax[parquet]', a row an image. Neither is ever whole in memory. What
IMAGE may be, `vit-jax predict` says.
"""

from collections.abc import Iterable, Iterator, Sequence
import contextlib
import itertools
import os
import pathlib
import shutil
from typing import Any
import zipfile

from absl import flags
from absl import logging
import numpy as np
import tqdm

from vit_jax import predictor as predictor_lib
from vit_jax.commands import predictor_flags
from vit_jax.data import inputs
from vit_jax.models import capture
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import storage

Row = tuple[str, np.ndarray]

_ROWS = 1024  # That are written at once.


def features(
  predictor: predictor_lib.Predictor,
  names: Sequence[str],
  *,
  layer: int | None = None,
  pooling: str | None = None,
) -> Iterator[Row]:
  """Yields the name of each image and its features, see `Predictor`."""
  for place, row in predictor.iter_features(names, layer, pooling):
    yield names[place], row


def write(rows: Iterable[Row], output: str) -> int:
  """Writes an .npz or a .parquet, whole or not at all; returns the row count.

  Raises:
    errors.UserError: if it cannot be written, or there is nothing to write.
  """
  path = storage.local_path(output)
  write_rows = _WRITERS.get(path.suffix)
  if write_rows is None:
    raise errors.UserError(
      f'output={output} must end in {" or ".join(_WRITERS)}.'
    )
  try:
    with files.replaced_file(path) as temporary:
      count = write_rows(_chunks(rows), temporary)
      if not count:
        raise errors.UserError('None of the images can be decoded.')
  except OSError as e:
    raise errors.UserError(
      f'output={output} cannot be written: {e.strerror}.'
    ) from e
  return count


def _chunks(
  rows: Iterable[Row],
) -> Iterator[tuple[tuple[str, ...], np.ndarray]]:
  rows = iter(rows)
  while chunk := list(itertools.islice(rows, _ROWS)):
    names, features = zip(*chunk, strict=True)
    yield names, np.stack(features)


def _write_npz(chunks: Iterable[Any], path: pathlib.Path) -> int:
  # How many rows there are, which comes first in the file, is known at the end.
  names, shape = [], ()
  raw = path.with_suffix('.raw')
  with open(raw, 'wb') as f:
    for chunk_names, features in chunks:
      names += chunk_names
      shape = features.shape[1:]
      f.write(np.ascontiguousarray(features, '<f4').data)
  header = {
    'descr': '<f4',
    'fortran_order': False,
    'shape': (len(names), *shape),
  }
  with zipfile.ZipFile(path, 'w') as archive:
    with (
      archive.open('features.npy', 'w', force_zip64=True) as f,
      open(raw, 'rb') as data,
    ):
      np.lib.format.write_array_header_1_0(f, header)
      shutil.copyfileobj(data, f)
    with archive.open('names.npy', 'w') as f:
      np.lib.format.write_array(f, np.array(names, np.str_))
  raw.unlink()
  return len(names)


def _write_parquet(chunks: Iterable[Any], path: pathlib.Path) -> int:
  try:
    import pyarrow as pa
    import pyarrow.parquet as pq
  except ImportError as e:
    raise errors.UserError(
      f"{path.name} needs pyarrow: pip install 'vit_jax[parquet]'. An .npz needs"
      f' nothing.'
    ) from e
  count = 0
  with contextlib.ExitStack() as stack:
    writer = None
    for names, features in chunks:
      column = pa.FixedShapeTensorArray.from_numpy_ndarray(features)
      # Its strings are UTF-8, which the bytes of a file's name may not be.
      text = [os.fsencode(x).decode(errors='backslashreplace') for x in names]
      table = pa.table({'name': pa.array(text), 'features': column})
      writer = writer or stack.enter_context(
        pq.ParquetWriter(path, table.schema)
      )
      writer.write_table(table)
      count += len(names)
  return count


_WRITERS = {'.npz': _write_npz, '.parquet': _write_parquet}


def define_flags() -> None:
  """Defines the flags of `vit-jax features`."""
  predictor_flags.define_flags()
  flags.DEFINE_string(
    'output', None, 'File to write, .npz or .parquet.', required=True
  )
  flags.DEFINE_integer(
    'layer',
    None,
    'Whose output, from 1; by default what the head sees.',
  )
  flags.DEFINE_enum(
    'pooling',
    None,
    capture.POOLINGS,
    'Class token, mean of the other tokens, or all tokens; by default as the'
    ' model pools.',
  )


def main(argv: Sequence[str]) -> None:
  options, names = flags.FLAGS, inputs.find(argv[1:])
  predictor = predictor_flags.from_flags()
  rows = features(
    predictor, names, layer=options.layer, pooling=options.pooling
  )
  bar = tqdm.tqdm(rows, total=len(names), disable=None)
  count = write(iter(bar), options.output)
  if predictor.skipped:
    logging.warning('%d images were skipped.', len(predictor.skipped))
  print(f'The features of {count} images are in {options.output}.')
