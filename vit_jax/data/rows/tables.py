"""Tables of images and their labels, see `table_files`."""

from collections.abc import Sequence
import os
from typing import Any

import numpy as np

from vit_jax.data import image_files
from vit_jax.data import splits as splits_lib
from vit_jax.data import unsplit
from vit_jax.data.rows import arrow_images
from vit_jax.data.rows import arrow_tables
from vit_jax.data.rows import labelled_rows
from vit_jax.data.rows import npz_tables
from vit_jax.data.rows import table_files
from vit_jax.data.rows import table_labels
from vit_jax.runtime import errors
from vit_jax.runtime import storage


class TableSource(labelled_rows.RowSource):
  """Images of some rows of a table, each with its label."""

  def __init__(
    self,
    images: Sequence[str | bytes | np.ndarray],
    names: Sequence[str],
    labels: table_labels.Labels,
    split_by: str = '',
    ranges: splits_lib.Ranges = (),
  ):
    super().__init__(names, labels, split_by, ranges)
    self._images = images
    self.image_shape = getattr(images, 'image_shape', None)

  def _image(self, index: int) -> bytes | np.ndarray:
    image = self._images[index]
    return image_files.read_bytes(image) if isinstance(image, str) else image


def open_table(
  path: arrow_tables.Place,
  split: str,
  columns: table_files.Columns = table_files.DEFAULT,
) -> TableSource:
  """Reads a table; images in files are read later.

  Args:
    path: the table.
    split: TFDS notation, such as 'train[:98%]'. The content of the images fixes
      the order, in which each slice has its share of every class; of images in a
      folder with splits, the numbers of the rows do.
    columns: names of the columns.

  Raises:
    errors.UserError: if a column is missing, or a row has no image or label.
  """
  columns = table_files.complete(path, columns)
  table = table_files.read(path, columns)
  of_row = _splits(table, path, columns)
  images, names = _images(table, of_row, path, columns)
  _check_overlap(names, of_row, path)
  labels = table_labels.read(table, of_row, path, columns)
  is_folder = arrow_tables.is_folder(path)
  is_split = len({*of_row}) > 1 if is_folder else columns.split in table

  def hashes(rows: Sequence[int]) -> list[bytes]:
    if not (is_folder and is_split):
      return unsplit.hashes([images[row] for row in rows])
    # Reading all images of a large data set would take long.
    numbers = (names[row].rpartition(', ')[2] for row in rows)
    return [unsplit.content_hash(number.encode()) for number in numbers]

  chosen, ranges = labelled_rows.of_split(
    split, of_row, labels, hashes, str(path)
  )
  return TableSource(
    images.chosen(chosen)
    if isinstance(images, arrow_images.Images | npz_tables.Images)
    else [images[row] for row in chosen],
    [names[row] for row in chosen],
    table_labels.chosen(labels, chosen),
    '' if is_split else unsplit.SPLIT_BY,
    ranges,
  )


def _images(
  table: table_files.Table,
  of_row: Sequence[str],
  path: arrow_tables.Place,
  columns: table_files.Columns,
) -> tuple[Sequence[Any], list[str]]:
  """Returns paths or bytes of all images, and their names."""
  images = table[columns.image]
  if isinstance(images, npz_tables.Images):
    return images, _row_names(of_row, path)
  if isinstance(images, arrow_images.Images):
    row = images.first_missing()
    if row is not None:
      raise _no_image(path, row, columns, images[row])
    return images, _row_names(of_row, path)
  found = []
  for row, value in enumerate(images):
    if isinstance(value, dict):  # As `datasets` writes them.
      value = value.get('path')
    if not value or not isinstance(value, str):
      raise _no_image(path, row, columns, value)
    if storage.is_address(value):
      raise errors.UserError(
        f'{table_files.row_name(path, row)} has the {columns.image} {value!r}, an'
        f' address: download the images, and give the paths of their files.'
      )
    file = os.path.join(arrow_tables.root(path), os.path.expanduser(value))
    found.append(os.path.normpath(file))  # One file has one name.
  return found, found


def _row_names(of_row: Sequence[str], path: arrow_tables.Place) -> list[str]:
  """Returns the names of images in the rows of files, counted in each split."""
  if not arrow_tables.is_folder(path):
    return [table_files.row_name(path, row) for row in range(len(of_row))]
  counts = dict.fromkeys(of_row, 0)
  names = []
  for split in of_row:
    names.append(table_files.row_name(f'{path}, {split}', counts[split]))
    counts[split] += 1
  return names


def _no_image(
  path: arrow_tables.Place,
  row: int,
  columns: table_files.Columns,
  value: Any,
) -> errors.UserError:
  name = table_files.row_name(path, row)
  if value is None or value == '':
    return table_files.empty_cell(name, columns.image)
  return errors.UserError(
    f'{name} has the {columns.image} {value!r}, must be a path or the bytes of a'
    f' file.'
  )


def _splits(
  table: table_files.Table,
  path: arrow_tables.Place,
  columns: table_files.Columns,
) -> list[str]:
  """Returns the split of each row."""
  values = table.get(columns.split, ['train'] * len(table[columns.image]))
  for row, value in enumerate(values):
    if not isinstance(value, str) or not value.isidentifier():
      shown = (
        f'the {columns.split} {value!r}' if value else f'no {columns.split}'
      )
      raise errors.UserError(
        f'{table_files.row_name(path, row)} has {shown}: each row needs one, such as'
        f" 'train' or 'test', or the table must not have that column."
      )
  return values


def _check_overlap(
  names: Sequence[str], of_row: Sequence[str], path: arrow_tables.Place
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
