"""Columns of Parquet and Arrow files: splits, classes by name, images."""

from collections.abc import Sequence
import functools
import os
import pathlib
from typing import Any

from absl import logging

from vit_jax.data.rows import arrow_folders
from vit_jax.data.rows import arrow_images
from vit_jax.data.rows import features
from vit_jax.data.rows import repositories
from vit_jax.runtime import errors
from vit_jax.runtime import storage

Place = repositories.Place

_NO_CLASS = (-1, None)  # What rows without a label have.


def reads(place: Place) -> bool:
  """Whether a table is a Parquet file, a folder, or the address of one."""
  return (
    is_folder(place)
    or storage.local_path(place).suffix.lower() == repositories.PARQUET
  )


def is_folder(place: Place) -> bool:
  """Whether a table is a folder or an address, whose files tell the splits."""
  return isinstance(place, str) or place.is_dir()


def root(place: Place) -> str:
  """Returns the folder that the paths in a table are relative to."""
  return os.fspath(
    place if is_folder(place) else storage.local_path(place).parent
  )


def schema(place: Place) -> Any:
  """Returns the pyarrow schema of the first file of a table."""
  return _schema(next(iter(_files(place).values()))[0])


def splits(place: Place, labels: Sequence[str]) -> repositories.Splits:
  """Returns the files of each split that has labels, in the columns `labels`."""
  found = _files(place)
  kept = {
    split: paths
    for split, paths in found.items()
    if len(found) == 1 or _has_labels(paths, labels)
  }
  for split in found.keys() - kept.keys():
    logging.info(
      '%s: the split %s is left out, it has no labels.', place, split
    )
  return kept or found


def read(
  place: Place, names: Sequence[str], image: str, labels: Sequence[str]
) -> tuple[dict[str, Any], list[str]]:
  """Returns columns by name, and the split of each row that the files tell.

  Args:
    place: the table.
    names: columns to read; those of classes are returned as their names.
    image: the column of the images, which is returned as `arrow_images.Images` if it
      has bytes.
    labels: the columns of the labels.
  """
  by_split = splits(place, labels)
  paths = [(split, path) for split, some in by_split.items() for path in some]
  first = _schema(paths[0][1])
  in_files = arrow_images.has_bytes(first.field(image).type)
  listed = [x for x in names if not (in_files and x == image)]
  table: dict[str, Any] = {name: [] for name in listed}
  of_row: list[str] = []
  for split, path in paths:
    columns = _columns(path, listed)
    of_row += [split] * len(columns)
    for name in listed:
      classes = _class_names(path, name, paths[0][1])
      table[name] += features.named(columns[name].to_pylist(), classes)
  if in_files:
    names_in = [os.fspath(path) for _, path in paths]
    table[image] = arrow_images.Images(names_in, image, root(place))
  return table, of_row


def _class_names(
  path: pathlib.Path, column: str, first: pathlib.Path
) -> Sequence[str]:
  """Returns the classes of a column, which are the same in all files."""
  want, have = (
    features.class_names(features.of_schema(_schema(x)).get(column))
    for x in (first, path)
  )
  if want != have:
    raise errors.UserError(
      f'The column {column} has the classes {errors.some(want)} in {first}, but'
      f' {errors.some(have)} in {path}: a number would mean two classes. Write the'
      f' files with the same names in the same order.'
    )
  return want


def _files(place: Place) -> repositories.Splits:
  if not is_folder(place):
    return {'train': [storage.local_path(place)]}
  if found := {k: v for k, v in arrow_folders.find(place).items() if v}:
    return found
  raise errors.UserError(f'{place} has no files of images.')


def _schema(path: pathlib.Path) -> Any:
  with arrow_images.reading(path):
    status = os.stat(path)
    return _known_schema(path, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=256)
def _known_schema(path: pathlib.Path, size: int, changed: int) -> Any:
  """Returns the schema of a file, which is read again only after it has changed."""
  from pyarrow import parquet  # Imported late: only tables need it.

  del size, changed
  if path.suffix.lower() != repositories.PARQUET:
    return arrow_images.mapped(path).schema
  return parquet.read_schema(path)


def _has_labels(paths: Sequence[pathlib.Path], labels: Sequence[str]) -> bool:
  """Whether some row of a split has a label."""
  first = _schema(paths[0])
  if not set(labels) <= set(first.names):
    return False
  known = features.of_schema(first)
  classes = [x for x in labels if features.kind(known.get(x)) == features.CLASS]
  if len(classes) < len(labels):
    return True
  return any(
    value not in _NO_CLASS
    for path in paths
    for column in _columns(path, classes).columns
    for value in column.unique().to_pylist()
  )


def _columns(path: pathlib.Path, names: Sequence[str]) -> Any:
  """Returns a pyarrow table with some columns of a file."""
  from pyarrow import parquet  # Imported late: only tables need it.

  with arrow_images.reading(path):
    if path.suffix.lower() == repositories.PARQUET:
      return parquet.read_table(path, columns=list(names), partitioning=None)
    return arrow_images.mapped(path).select(list(names))
