"""Labels of the rows of a table: a class, any number of classes, or numbers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
import dataclasses
import itertools
import math
import os
from typing import Any

import numpy as np

from vit_jax.configs import labels as labels_lib
from vit_jax.data import class_names
from vit_jax.data.rows import table_files
from vit_jax.data.rows import text_tables
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import storage


@dataclasses.dataclass(frozen=True)
class Labels:
  """What the rows of a table are labelled with.

  Attributes:
    task: one of `configs.labels.TASKS`.
    values: classes, int [N]; 1 for each class that an image has, float32 [N, K]; or
      numbers, float32 [N, K].
    names: classes, or names of the numbers.
    units: units of the numbers; empty for none.
    weights: how much each row counts in the training loss, float32 [N]; None if the
      table does not say.
  """

  task: str
  values: np.ndarray
  names: Sequence[str]
  units: Sequence[str] = ()
  weights: np.ndarray | None = None


def group(labels: Labels, row: int) -> Any:
  """Returns what slices have equal shares of: a class, or a set of classes."""
  if labels.task == labels_lib.REGRESSION:
    return None
  return labels.values[row].tobytes()


def chosen(labels: Labels, rows: Sequence[int]) -> Labels:
  """Returns the labels of some rows."""
  rows, weights = list(rows), labels.weights
  return dataclasses.replace(
    labels,
    values=labels.values[rows],
    weights=None if weights is None else weights[rows],
  )


@dataclasses.dataclass(frozen=True)
class _Rows:
  """The rows of a table, whose labels are read.

  Attributes:
    table: its columns.
    of_row: the split of each row.
    path: the table, for messages.
    columns: what the columns are.
    names: what messages call the rows; None for their numbers.
  """

  table: table_files.Table
  of_row: Sequence[str]
  path: os.PathLike | str
  columns: table_files.Columns
  names: Sequence[str] | None

  def name(self, row: int) -> str:
    if self.names is None:
      return table_files.row_name(self.path, row)
    return self.names[row]


def read(
  table: table_files.Table,
  of_row: Sequence[str],
  path: os.PathLike | str,
  columns: table_files.Columns,
  names: Sequence[str] | None = None,
) -> Labels:
  """Returns the labels of a table, whose rows have the splits `of_row`.

  `names` are what messages call the rows; None for their numbers.

  Raises:
    errors.UserError: if a column is missing, or a row has no label or another one
      than the task has, or a weight below 0.
  """
  task = table_files.choose_task(table, path, columns)
  rows = _Rows(table, of_row, path, columns, names)
  found = _READERS[task](rows)
  if columns.weight not in table or columns.weight in columns.of_task(task):
    return found
  return dataclasses.replace(found, weights=_weights(rows))


def _weights(rows: _Rows) -> np.ndarray:
  """Returns the weights of all rows, see `row_weights`."""
  column = rows.columns.weight
  advice = 'To train without weights, set config.columns.weight= (empty).'
  try:
    weights = _numbers(rows, [column])[:, 0]
  except errors.UserError as e:
    raise errors.UserError(f'{e} {advice}') from None
  if negative := np.flatnonzero(weights < 0).tolist():
    value = rows.table[column][negative[0]]
    raise errors.UserError(
      f'{rows.name(negative[0])} has the {column} {value!r}, must be at least 0.'
      f' {advice}'
    )
  return weights


def _multiclass(rows: _Rows) -> Labels:
  column = rows.columns.label
  texts = [
    '' if _is_missing(value) else class_names.text(value)
    for value in rows.table[column]
  ]
  names = _class_names([[text] if text else [] for text in texts], rows)
  places = {name: place for place, name in enumerate(names)}
  labels = []
  for row, text in enumerate(texts):
    if not text:
      raise table_files.empty_cell(rows.name(row), column)
    if text not in places:
      raise _unknown(rows.name(row), column, rows.table[column][row], names)
    labels.append(places[text])
  return Labels(labels_lib.MULTICLASS, np.array(labels, int), names)


def _multilabel(rows: _Rows) -> Labels:
  task, columns = labels_lib.MULTILABEL, rows.columns
  if len(names := columns.of_task(task)) > 1:
    marks = _numbers(rows, names)
    if wrong := np.argwhere((marks != 0) & (marks != 1)).tolist():
      row, column = wrong[0]
      value = rows.table[names[column]][row]
      raise errors.UserError(
        f'{rows.name(row)} has the {names[column]} {value!r}, must be 0 or 1.'
      )
    return Labels(task, marks, names)
  if not columns.separator:
    raise errors.UserError(
      "config.columns.separator is empty, must be what is between classes, such as '|'."
    )
  of_rows = []
  for row, value in enumerate(rows.table[columns.labels]):
    if value is None and text_tables.is_separated(rows.path):
      e = table_files.empty_cell(rows.name(row), columns.labels)
      raise errors.UserError(f'{e} For no class, leave the cell empty.')
    of_rows.append(_several(value, columns.separator))
  names = _class_names(of_rows, rows)
  if not names:
    raise errors.UserError(
      f'No image of {rows.path} to train on has a class in the column'
      f' {columns.labels!r}.'
    )
  is_named = columns.labels != table_files.DEFAULT.labels
  has_marks = {*itertools.chain(*of_rows)} <= {'0', '1'}
  if is_named and has_marks and all(len(row) == 1 for row in of_rows):
    raise errors.UserError(
      f'{rows.path} has only 0 and 1 in the column {columns.labels!r}. For one class'
      f' an image, set config.columns.label={columns.labels} and'
      f" config.task='multiclass'; for several, name a column for each."
    )
  places = {name: place for place, name in enumerate(names)}
  marks = np.zeros((len(of_rows), len(names)), np.float32)
  for row, found in enumerate(of_rows):
    for name in found:
      if name not in places:
        raise _unknown(rows.name(row), columns.labels, name, names)
      marks[row, places[name]] = 1
  return Labels(task, marks, names)


def _is_missing(value: Any) -> bool:
  return value is None or (isinstance(value, float) and math.isnan(value))


def _several(value: Any, separator: str) -> list[str]:
  """Returns the classes of an image; it may have none."""
  if _is_missing(value):
    return []
  if isinstance(value, str):
    value = value.split(separator)
  elif not isinstance(value, list):
    value = [value]
  texts = [class_names.text(part) for part in value if not _is_missing(part)]
  return [text for text in texts if text]


def _regression(rows: _Rows) -> Labels:
  columns = rows.columns
  names = columns.of_task(labels_lib.REGRESSION)
  units = columns.units.split(',') if columns.units else []
  if units and len(units) != len(names):
    raise errors.UserError(
      f'config.columns.units is {columns.units!r}, must have one unit for each of'
      f' {", ".join(names)}.'
    )
  return Labels(labels_lib.REGRESSION, _numbers(rows, names), names, units)


def _numbers(rows: _Rows, names: Sequence[str]) -> np.ndarray:
  """Returns columns of numbers, float32 [N, K]; raises at one that is none."""
  numbers = np.zeros((len(rows.of_row), len(names)), np.float32)
  for place, name in enumerate(names):
    for row, value in enumerate(rows.table[name]):
      if value is None or value == '':
        raise table_files.empty_cell(rows.name(row), name)
      try:
        numbers[row, place] = float(value)
      except (TypeError, ValueError):
        numbers[row, place] = math.nan
      if not math.isfinite(numbers[row, place]):
        raise errors.UserError(
          f'{rows.name(row)} has the {name} {value!r}, which is not a number.'
        )
  return numbers


def _class_names(of_rows: Sequence[Iterable[str]], rows: _Rows) -> list[str]:
  """Returns the classes: of a file, of the table, or of the training images."""
  if rows.columns.classes:
    return _names_of_file(rows.columns.classes)
  if rows.columns.class_names:
    return class_names.distinct(
      rows.columns.class_names, f'{rows.path}: class_names'
    )
  found: dict[str, set[str]] = {}  # By split.
  for names, split in zip(of_rows, rows.of_row, strict=True):
    found.setdefault(split, set()).update(names)
  every = set[str]().union(*found.values())
  known = found.get('train', every)
  if extra := sorted(every - known):
    row = next(i for i, names in enumerate(of_rows) if extra[0] in names)
    raise errors.UserError(
      f'{rows.path} has labels in other splits that train lacks: {errors.some(extra)}'
      f' ({rows.name(row)}). A model knows only the classes it was trained on.'
    )
  return class_names.ordered(known)


def _names_of_file(path: str) -> list[str]:
  file = storage.local_path(path)
  try:
    names = files.read_lines(file)
  except (OSError, UnicodeDecodeError) as e:
    raise errors.UserError(
      f'config.columns.classes={file} cannot be read: {e}.'
    ) from e
  return class_names.distinct(names, f'config.columns.classes={file}')


def _unknown(
  row: str, column: str, value: Any, names: Sequence[str]
) -> errors.UserError:
  return errors.UserError(
    f'{row} has the {column} {value!r}, which is not one of the {len(names)}'
    f' classes: {errors.some(names)}.'
  )


_READERS: Mapping[str, Callable[[_Rows], Labels]] = {
  labels_lib.MULTICLASS: _multiclass,
  labels_lib.MULTILABEL: _multilabel,
  labels_lib.REGRESSION: _regression,
}
