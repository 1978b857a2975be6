"""Tables of images and their labels: .csv, .tsv, .jsonl and .parquet."""

from collections.abc import Sequence
import dataclasses
import os
import pathlib

from vit_jax.data import image_files
from vit_jax.data import labelled_rows
from vit_jax.data import table_files
from vit_jax.data import table_labels
from vit_jax.data import unsplit
from vit_jax.runtime import errors


class TableSource(labelled_rows.RowSource):
  """Images of some rows of a table, each with its label."""

  def __init__(
    self,
    images: Sequence[str | bytes],
    names: Sequence[str],
    labels: table_labels.Labels,
    split_by: str = '',
  ):
    super().__init__(names, labels, split_by)
    self._images = images

  def _image(self, index: int) -> bytes:
    image = self._images[index]
    return image_files.read_bytes(image) if isinstance(image, str) else image


def open_table(
  path: pathlib.Path,
  split: str,
  columns: table_files.Columns = table_files.DEFAULT,
) -> TableSource:
  """Reads a table; images in files are read later.

  Args:
    path: the table.
    split: TFDS notation, such as 'train[:98%]'. The content of the images fixes
      the order, in which each slice has its share of every class.
    columns: names of the columns.

  Raises:
    errors.UserError: if a column is missing, or a row has no image or label.
  """
  task = table_files.task(path, columns)
  columns = dataclasses.replace(columns, task=task)
  table = table_files.read(path, columns)
  images, names = _images(table, path, columns)
  of_row = _splits(table, path, columns)
  _check_overlap(names, of_row, path)
  labels = table_labels.read(table, of_row, path, columns)
  chosen = labelled_rows.of_split(
    split,
    of_row,
    labels,
    lambda rows: unsplit.hashes([images[row] for row in rows]),
    str(path),
  )
  return TableSource(
    [images[row] for row in chosen],
    [names[row] for row in chosen],
    table_labels.chosen(labels, chosen),
    '' if columns.split in table else unsplit.SPLIT_BY,
  )


def has_splits(
  path: pathlib.Path, columns: table_files.Columns = table_files.DEFAULT
) -> bool:
  """Whether a table says which images are for the test."""
  return columns.split in table_files.column_names(path, columns)


def _images(
  table: table_files.Table, path: pathlib.Path, columns: table_files.Columns
) -> tuple[list[str | bytes], list[str]]:
  """Returns paths or bytes of all images, and their names."""
  images, names = [], []
  for row, value in enumerate(table[columns.image]):
    name = table_files.row_name(path, row)
    if isinstance(value, dict):  # As `datasets` writes them.
      name = value.get('path') or name
      value = value.get('bytes') or value.get('path')
    if not value or not isinstance(value, str | bytes):
      raise errors.UserError(
        f'{table_files.row_name(path, row)} has no image: its {columns.image} is {value!r}, must'
        f' be a path or the bytes of a file.'
      )
    if isinstance(value, str):
      value = name = os.path.join(path.parent, os.path.expanduser(value))
    images.append(value)
    names.append(name)
  return images, names


def _splits(
  table: table_files.Table, path: pathlib.Path, columns: table_files.Columns
) -> list[str]:
  """Returns the split of each row."""
  values = table.get(columns.split, ['train'] * len(table[columns.image]))
  for row, value in enumerate(values):
    if not isinstance(value, str) or not value.isidentifier():
      raise errors.UserError(
        f'{table_files.row_name(path, row)} has the {columns.split} {value!r}: each row needs one,'
        f" such as 'train' or 'test', or the table must not have that column."
      )
  return values


def _check_overlap(
  names: Sequence[str], of_row: Sequence[str], path: pathlib.Path
) -> None:
  """Raises `errors.UserError` if an image is in two splits."""
  seen: dict[str, int] = {}
  for row, name in enumerate(names):
    first = seen.setdefault(name, row)
    if of_row[first] != of_row[row]:
      raise errors.UserError(
        f'{path} has {name} in {of_row[first]} (row {first + 1}) and in'
        f' {of_row[row]} (row {row + 1}): a model that was trained on an image'
        f' cannot be tested on it. Remove one of the rows.'
      )
