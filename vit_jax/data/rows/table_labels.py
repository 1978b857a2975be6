"""Labels of the rows of a table: a class, any number of classes, or numbers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
import dataclasses
import math
import os
from typing import Any
import unicodedata

import numpy as np

from vit_jax.configs import labels as labels_lib
from vit_jax.data.rows import table_files
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import storage

_SOME = 5  # Values of a column that a message names.


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


def read(
  table: table_files.Table,
  of_row: Sequence[str],
  path: os.PathLike | str,
  columns: table_files.Columns,
) -> Labels:
  """Returns the labels of a table, whose rows have the splits `of_row`.

  Raises:
    errors.UserError: if a column is missing, or a row has no label or another one
      than the task has, or a weight below 0.
  """
  task = table_files.choose_task(table, path, columns)
  found = _READERS[task](table, of_row, path, columns)
  if columns.weight not in table or columns.weight in columns.of_task(task):
    return found
  return dataclasses.replace(found, weights=_weights(table, path, columns))


def _weights(
  table: table_files.Table,
  path: os.PathLike | str,
  columns: table_files.Columns,
) -> np.ndarray:
  """Returns the weights of all rows, see `row_weights`."""
  advice = 'To train without weights, set config.columns.weight= (empty).'
  try:
    weights = _numbers(table, [columns.weight], path)[:, 0]
  except errors.UserError as e:
    raise errors.UserError(f'{e} {advice}') from None
  if negative := np.flatnonzero(weights < 0).tolist():
    raise errors.UserError(
      f'{table_files.row_name(path, negative[0])} has the {columns.weight}'
      f' {table[columns.weight][negative[0]]!r}, must be at least 0. {advice}'
    )
  return weights


def _text(value: Any) -> str:
  """Returns a label as text that compares equal on every machine."""
  return unicodedata.normalize('NFC', str(value))


def _multiclass(
  table: table_files.Table,
  of_row: Sequence[str],
  path: os.PathLike | str,
  columns: table_files.Columns,
) -> Labels:
  values = table[columns.label]
  of_rows = [() if value is None else (_text(value),) for value in values]
  names = _class_names(of_rows, of_row, path, columns)
  places = {name: place for place, name in enumerate(names)}
  labels = []
  for row, found in enumerate(of_rows):
    if not found or found[0] not in places:
      raise _unknown(path, row, columns.label, values[row], names)
    labels.append(places[found[0]])
  return Labels(labels_lib.MULTICLASS, np.array(labels, int), names)


def _multilabel(
  table: table_files.Table,
  of_row: Sequence[str],
  path: os.PathLike | str,
  columns: table_files.Columns,
) -> Labels:
  task = labels_lib.MULTILABEL
  if len(names := columns.of_task(task)) > 1:
    marks = _numbers(table, names, path)
    if wrong := np.argwhere((marks != 0) & (marks != 1)).tolist():
      row, column = wrong[0]
      raise errors.UserError(
        f'{table_files.row_name(path, row)} has the {names[column]}'
        f' {table[names[column]][row]!r}, must be 0 or 1.'
      )
    return Labels(task, marks, names)
  values = table[columns.labels]
  of_rows = [_several(value, columns.separator) for value in values]
  names = _class_names(of_rows, of_row, path, columns)
  places = {name: place for place, name in enumerate(names)}
  marks = np.zeros((len(of_rows), len(names)), np.float32)
  for row, found in enumerate(of_rows):
    for name in found:
      if name not in places:
        raise _unknown(path, row, columns.labels, name, names)
      marks[row, places[name]] = 1
  return Labels(task, marks, names)


def _several(value: Any, separator: str) -> list[str]:
  """Returns the classes of an image; it may have none."""
  if value is None:
    return []
  if isinstance(value, str):
    value = [part.strip() for part in value.split(separator)]
  elif not isinstance(value, list):
    value = [value]
  return [_text(part) for part in value if part not in (None, '')]


def _regression(
  table: table_files.Table,
  of_row: Sequence[str],
  path: os.PathLike | str,
  columns: table_files.Columns,
) -> Labels:
  del of_row
  names = columns.of_task(labels_lib.REGRESSION)
  units = columns.units.split(',') if columns.units else []
  if units and len(units) != len(names):
    raise errors.UserError(
      f'config.columns.units is {columns.units!r}, must have one unit for each of'
      f' {", ".join(names)}.'
    )
  return Labels(
    labels_lib.REGRESSION, _numbers(table, names, path), names, units
  )


def _numbers(
  table: table_files.Table, names: Sequence[str], path: os.PathLike | str
) -> np.ndarray:
  """Returns columns of numbers, float32 [N, K]; raises at one that is none."""
  rows = np.zeros((len(table[names[0]]), len(names)), np.float32)
  for place, name in enumerate(names):
    for row, value in enumerate(table[name]):
      try:
        rows[row, place] = float(value)
      except (TypeError, ValueError):
        rows[row, place] = math.nan
      if not math.isfinite(rows[row, place]):
        raise errors.UserError(
          f'{table_files.row_name(path, row)} has the {name} {value!r}, which is'
          f' not a number.'
        )
  return rows


def _class_names(
  of_rows: Sequence[Iterable[str]],
  of_row: Sequence[str],
  path: os.PathLike | str,
  columns: table_files.Columns,
) -> list[str]:
  """Returns the classes: of a file, of the table, or of the training images."""
  if columns.classes:
    file = storage.local_path(columns.classes)
    try:
      return files.read_lines(file)
    except (OSError, UnicodeDecodeError) as e:
      raise errors.UserError(
        f'config.columns.classes={file} cannot be read: {e}.'
      ) from e
  if columns.class_names:
    return list(columns.class_names)
  found: dict[str, set[str]] = {}  # By split.
  for names, split in zip(of_rows, of_row, strict=True):
    found.setdefault(split, set()).update(names)
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


def _unknown(
  path: os.PathLike | str,
  row: int,
  column: str,
  value: Any,
  names: Sequence[str],
) -> errors.UserError:
  more = ', ...' if len(names) > _SOME else ''
  return errors.UserError(
    f'{table_files.row_name(path, row)} has the {column} {value!r}, which is not'
    f' one of the {len(names)} classes: {", ".join(names[:_SOME])}{more}.'
  )


_READERS: Mapping[str, Callable[..., Labels]] = {
  labels_lib.MULTICLASS: _multiclass,
  labels_lib.MULTILABEL: _multilabel,
  labels_lib.REGRESSION: _regression,
}
