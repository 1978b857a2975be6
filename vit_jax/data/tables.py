"""Tables of images and their labels: .csv, .tsv, .jsonl and .parquet."""

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import dataclasses
import os
import pathlib
from typing import Any
import unicodedata

import numpy as np

from vit_jax.configs import common
from vit_jax.data import folder
from vit_jax.data import image_files
from vit_jax.data import splits as splits_lib
from vit_jax.data import unsplit
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import storage

_SOME = 5  # Values of a column that a message names.


@dataclasses.dataclass(frozen=True)
class Columns:
  """Names of the columns of a table, and its classes.

  Attributes:
    image: paths, absolute or relative to the table; or the bytes of image files.
    label: the class of each image.
    split: 'train' or 'test'. Without that column the images have 'train' alone.
    classes: file with the classes, one a line, in the order of the logits; empty
      for those in the table, sorted.
  """

  image: str = 'image'
  label: str = 'label'
  split: str = 'split'
  classes: str = ''


DEFAULT = Columns()


def is_table(dataset: str) -> bool:
  """Whether a data set is named by the file of a table."""
  return dataset.lower().endswith(common.TABLES)


class TableSource:
  """Images of some rows of a table, each with its label."""

  image_shape: tuple[int, ...] | None = None

  def __init__(
    self,
    images: Sequence[str | bytes],
    names: Sequence[str],
    labels: Sequence[int],
    class_names: Sequence[str],
    split_by: str = '',
  ):
    self._images, self._names, self._labels = images, names, labels
    self.class_names: Sequence[str] = list(class_names)
    self.split_by = split_by

  def __len__(self) -> int:
    return len(self._images)

  def __getitem__(self, index: int) -> dict[str, Any]:
    image, name = self._images[index], self._names[index]
    if isinstance(image, str):
      image = image_files.read_bytes(image)
    return {'image': image, 'label': self._labels[index], 'name': name}

  def labels(self) -> np.ndarray:
    """Returns the labels of all images, int [N]."""
    return np.array(self._labels, int)

  def names(self) -> Sequence[str]:
    """Returns the paths of all images, or the rows they are in."""
    return self._names


def open_table(
  path: pathlib.Path, split: str, columns: Columns = DEFAULT
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
  table = _read(path, columns)
  images, names = _images(table, path, columns)
  of_row = _splits(table, path, columns)
  _check_overlap(names, of_row, path)
  class_names = _class_names(table, of_row, path, columns)
  labels = _labels(table, class_names, path, columns)
  rows: dict[str, list[int]] = {name: [] for name in sorted(set(of_row))}
  for row, name in enumerate(of_row):
    rows[name].append(row)
  rows, split = folder.with_test(rows, split)
  parts = splits_lib.parse_split(
    split, {name: len(x) for name, x in rows.items()}, str(path)
  )
  chosen = []
  for name, start, end in parts:
    order = unsplit.stratified(
      [labels[row] for row in rows[name]],
      unsplit.hashes([images[row] for row in rows[name]]),
    )
    chosen += [rows[name][i] for i in order[start:end]]
  return TableSource(
    [images[row] for row in chosen],
    [names[row] for row in chosen],
    [labels[row] for row in chosen],
    class_names,
    '' if columns.split in table else unsplit.SPLIT_BY,
  )


def has_splits(path: pathlib.Path, columns: Columns = DEFAULT) -> bool:
  """Whether a table says which images are for the test."""
  if path.suffix.lower() == '.parquet':  # Its images need not be read.
    return columns.split in _parquet_names(path)
  return columns.split in _read(path, columns)


def _parquet_names(path: pathlib.Path) -> list[str]:
  from pyarrow import parquet  # Imported late: only tables need it.

  with _reading(path):
    return parquet.read_schema(path).names


@contextlib.contextmanager
def _reading(path: pathlib.Path) -> Iterator[None]:
  """Turns an error of reading a table into one line."""
  import pyarrow as pa  # Imported late: only tables need it.

  try:
    yield
  except (OSError, pa.ArrowException) as e:
    reason = getattr(e, 'strerror', None) or errors.first_line(e)
    raise errors.UserError(f'{path} cannot be read: {reason}') from e


def _read(path: pathlib.Path, columns: Columns) -> dict[str, list[Any]]:
  """Returns the columns of a table that are read, by their names."""
  import pyarrow as pa  # Imported late: only tables need it.
  from pyarrow import csv
  from pyarrow import json
  from pyarrow import parquet

  wanted = (columns.image, columns.label, columns.split)
  with _reading(path):
    if path.suffix.lower() == '.parquet':
      names = _parquet_names(path)
      table = parquet.read_table(
        path, columns=[n for n in wanted if n in names]
      )
    elif path.suffix.lower() == '.jsonl':
      table = json.read_json(path)
    else:
      delimiter = '\t' if path.suffix.lower() == '.tsv' else ','
      table = csv.read_csv(
        path,
        parse_options=csv.ParseOptions(
          delimiter=delimiter, newlines_in_values=True
        ),
        # Labels such as 007 stay as they are.
        convert_options=csv.ConvertOptions(
          column_types=dict.fromkeys(wanted, pa.string()),
          strings_can_be_null=True,
        ),
      )
  for setting in ('image', 'label'):
    if (name := getattr(columns, setting)) not in table.column_names:
      raise errors.UserError(
        f'{path} has no column {name!r}, only {", ".join(table.column_names)}.'
        f' Name the one with the {setting}s: config.columns.{setting}=NAME.'
      )
  if not len(table):
    raise errors.UserError(f'{path} has no rows.')
  return {n: table[n].to_pylist() for n in wanted if n in table.column_names}


def _row(path: pathlib.Path, row: int) -> str:
  """Returns how a message names a row: the first one after a header is 1."""
  return f'{path}, row {row + 1}'


def _images(
  table: Mapping[str, list[Any]], path: pathlib.Path, columns: Columns
) -> tuple[list[str | bytes], list[str]]:
  """Returns paths or bytes of all images, and their names."""
  images, names = [], []
  for row, value in enumerate(table[columns.image]):
    name = _row(path, row)
    if isinstance(value, dict):  # As `datasets` writes them.
      name = value.get('path') or name
      value = value.get('bytes') or value.get('path')
    if not value or not isinstance(value, str | bytes):
      raise errors.UserError(
        f'{_row(path, row)} has no image: its {columns.image} is {value!r}, must'
        f' be a path or the bytes of a file.'
      )
    if isinstance(value, str):
      value = name = os.path.join(path.parent, os.path.expanduser(value))
    images.append(value)
    names.append(name)
  return images, names


def _splits(
  table: Mapping[str, list[Any]], path: pathlib.Path, columns: Columns
) -> list[str]:
  """Returns the split of each row."""
  values = table.get(columns.split, ['train'] * len(table[columns.image]))
  for row, value in enumerate(values):
    if not isinstance(value, str) or not value.isidentifier():
      raise errors.UserError(
        f'{_row(path, row)} has the {columns.split} {value!r}: each row needs one,'
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


def _text(value: Any) -> str:
  """Returns a label as text that compares equal on every machine."""
  return unicodedata.normalize('NFC', str(value))


def _class_names(
  table: Mapping[str, list[Any]],
  of_row: Sequence[str],
  path: pathlib.Path,
  columns: Columns,
) -> list[str]:
  """Returns the classes: of a file, or of the training images."""
  if columns.classes:
    file = storage.local_path(columns.classes)
    try:
      return files.read_lines(file)
    except (OSError, UnicodeDecodeError) as e:
      raise errors.UserError(
        f'config.columns.classes={file} cannot be read: {e}.'
      ) from e
  found: dict[str, set[str]] = {}  # By split.
  for value, split in zip(table[columns.label], of_row, strict=True):
    if value is not None:
      found.setdefault(split, set()).add(_text(value))
  every = set[str]().union(*found.values())
  known = found.get('train', every)
  if extra := sorted(every - known):
    raise errors.UserError(
      f'{path} has {len(extra)} labels in other splits that train lacks, such as'
      f' {", ".join(extra[:_SOME])}: a model knows only the classes it was trained'
      f' on.'
    )
  are_numbers = all(x.lstrip('-').isdecimal() for x in known)
  return sorted(known, key=(lambda x: (int(x), x)) if are_numbers else None)


def _labels(
  table: Mapping[str, list[Any]],
  class_names: Sequence[str],
  path: pathlib.Path,
  columns: Columns,
) -> list[int]:
  """Returns the label of each row; raises at one that is not a class."""
  places = {name: label for label, name in enumerate(class_names)}
  labels = []
  for row, value in enumerate(table[columns.label]):
    if value is None or _text(value) not in places:
      names = ', '.join(class_names[:_SOME])
      more = ', ...' if len(class_names) > _SOME else ''
      raise errors.UserError(
        f'{_row(path, row)} has the {columns.label} {value!r}, which is not one of'
        f' the {len(class_names)} classes: {names}{more}.'
      )
    labels.append(places[_text(value)])
  return labels
