"""The columns of a table: .csv, .tsv, .jsonl, .parquet, .npz, or a folder of them."""

from collections.abc import Collection
import dataclasses
import os
import pathlib
from typing import Any

from vit_jax.configs import common
from vit_jax.configs import labels
from vit_jax.data.rows import arrow_folders
from vit_jax.data.rows import arrow_tables
from vit_jax.data.rows import features
from vit_jax.data.rows import npz_tables
from vit_jax.data.rows import text_tables
from vit_jax.runtime import errors
from vit_jax.runtime import storage

_SEPARATORS = (';', '\t', '|', ',')  # That other programs write.

# Columns by name; that of the images may be read later.
Table = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Columns:
  """Names of the columns of a table, and how its labels are written.

  Attributes:
    image: paths, absolute or relative to the table; or the bytes of image files.
    label: the class of each image.
    labels: all classes of each image, a list or text; or several columns, with
      commas between their names, which have 1 where an image is of that class.
    target: a number; or several columns of numbers, with commas between them.
    split: 'train' or 'test'. Without that column the images have 'train' alone.
    weight: how much an image counts in the training loss; empty for none.
    classes: file with the classes, one a line, in the order of the logits; empty
      for those in the table, sorted.
    separator: what is between the classes of an image, if they are text.
    units: units of the numbers, with commas between them; empty for none.
    task: one of `configs.labels.TASKS`; empty for what the columns tell.
    class_names: the classes that the table itself names, in the order of the logits.
  """

  image: str = 'image'
  label: str = 'label'
  labels: str = 'labels'
  target: str = 'target'
  split: str = 'split'
  weight: str = 'weight'
  classes: str = ''
  separator: str = '|'
  units: str = ''
  task: str = ''
  class_names: tuple[str, ...] = ()

  def of_task(self, task: str) -> list[str]:
    """Returns the columns with the labels of a task."""
    name = getattr(self, labels.COLUMNS[task])
    return [name] if task == labels.MULTICLASS else name.split(',')

  def wanted(self) -> list[str]:
    """Returns all columns that may be read."""
    tasks = [self.task] if self.task else labels.TASKS
    of_tasks = [name for task in tasks for name in self.of_task(task)]
    names = [self.image, *of_tasks, self.split, self.weight]
    return [name for name in dict.fromkeys(names) if name]


DEFAULT = Columns()


def is_table(dataset: str) -> bool:
  """Whether a data set is a table: a file, or files of Hugging Face's `datasets`."""
  return dataset.lower().endswith(common.TABLES) or arrow_folders.is_named(
    dataset
  )


def place(dataset: str) -> arrow_tables.Place:
  """Returns where a table is: its path, or an address of the hub."""
  return dataset if storage.is_address(dataset) else storage.local_path(dataset)


def row_name(path: os.PathLike | str, row: int) -> str:
  """Returns how a message names a row: the first one after a header is 1."""
  return f'{path}, row {row + 1}'


def empty_cell(row: str, column: str) -> errors.UserError:
  """Returns the error of a row, as `row_name` names it, without a value."""
  return errors.UserError(
    f'{row} has no {column}: it is missing, empty, or a word for that, such as NA.'
  )


def column_names(path: arrow_tables.Place, columns: Columns) -> list[str]:
  """Returns the names of all columns."""
  if arrow_tables.reads(path):
    return arrow_tables.schema(path).names
  if npz_tables.is_npz(path):
    return list(npz_tables.read(storage.local_path(path)).table)
  return _open(path, columns).column_names


def complete(path: arrow_tables.Place, columns: Columns) -> Columns:
  """Returns columns with the task and what Hugging Face's `datasets` wrote of them.

  The only column of images is that of the images, and the only column of classes that
  of the labels, unless there are columns of the names in `columns`, or these are not
  the defaults.

  Raises:
    errors.UserError: if the columns do not tell the task, or lack what
      `columns.task` needs.
  """
  if npz_tables.is_npz(path):
    return _from_arrays(storage.local_path(path), columns)
  known: features.Features = {}
  if arrow_tables.reads(path):
    known = features.of_schema(arrow_tables.schema(path))
    columns = _from_features(columns, known)
  task = choose_task(column_names(path, columns), path, columns)
  of_task = columns.of_task(task)
  names = features.class_names(known.get(of_task[0]))
  return dataclasses.replace(columns, task=task, class_names=tuple(names))


def _from_arrays(path: pathlib.Path, columns: Columns) -> Columns:
  """Returns columns with what the arrays of a file decide."""
  found = npz_tables.read(path).columns
  if columns.task not in ('', found['task']):
    raise errors.UserError(
      f'config.task is {columns.task!r}, but the labels of {path} are for'
      f' {found["task"]!r}: classes are integers or text [N], several classes 0 and 1'
      f' [N, K], numbers floats.'
    )
  return dataclasses.replace(columns, **found)


def _from_features(columns: Columns, known: features.Features) -> Columns:
  """Returns columns with the names of those that features tell."""

  def of_kind(kind: str) -> list[str]:
    return [n for n, x in known.items() if features.kind(x) == kind]

  def is_open(field: str) -> bool:
    name = getattr(columns, field)
    return name == getattr(Columns, field) and name not in known

  found: dict[str, Any] = {}
  task = columns.task
  if is_open('image') and len(of_kind(features.IMAGE)) == 1:
    found['image'] = of_kind(features.IMAGE)[0]
  has_none = all(is_open(field) for field in labels.COLUMNS.values())
  classes = of_kind(features.CLASS)
  if task in ('', labels.MULTICLASS) and columns.labels in classes:
    # The column has one class an image, in spite of its name.
    if is_open('label'):
      found |= {'label': columns.labels, 'task': labels.MULTICLASS}
  elif has_none and len(names := classes + of_kind(features.CLASSES)) == 1:
    found['label' if classes else 'labels'] = names[0]
  return dataclasses.replace(columns, **found)


def choose_task(
  names: Collection[str], path: os.PathLike | str, columns: Columns
) -> str:
  """Returns the task of a table with the columns `names`.

  Raises:
    errors.UserError: if its columns do not tell, or lack what `columns.task` needs.
  """
  fitting = [
    task
    for task in ([columns.task] if columns.task else labels.TASKS)
    if set(columns.of_task(task)) <= set(names)
  ]
  if len(fitting) == 1:
    return fitting[0]
  if fitting:
    have = ', '.join(n for task in fitting for n in columns.of_task(task))
    raise errors.UserError(
      f'{path} has the columns {have}: set config.task to one of'
      f' {", ".join(fitting)}.'
    )
  raise _missing(path, names, columns)


def _missing(
  path: os.PathLike | str, names: Collection[str], columns: Columns
) -> errors.UserError:
  """Returns an error about a table without labels of the task."""
  field = labels.COLUMNS[columns.task or labels.MULTICLASS]
  lacks = [
    n
    for n in columns.of_task(columns.task or labels.MULTICLASS)
    if n not in names
  ]
  others = (
    '' if columns.task else f' (or {columns.labels!r}, {columns.target!r})'
  )
  what = {'label': 'labels', 'labels': 'labels', 'target': 'numbers'}[field]
  return _no_column(path, f'{lacks[0]!r}{others}', names, what, field)


def _no_column(
  path: os.PathLike | str,
  lacks: str,
  names: Collection[str],
  what: str,
  field: str,
) -> errors.UserError:
  """Returns an error about a table that has only the columns `names`."""
  first = next(iter(names), '')
  wrong = [sep for sep in _SEPARATORS if sep in first]
  if len(names) == 1 and wrong:
    return errors.UserError(
      f'{path} has one column, {first!r}: its columns seem to have {wrong[0]!r}'
      f' between them, but those of a .csv must have commas, those of a .tsv tabs.'
    )
  have = ', '.join(x if x == x.strip() else repr(x) for x in names)
  return errors.UserError(
    f'{path} has no column {lacks}, only {have}. Name the one with the {what}:'
    f' config.columns.{field}=NAME.'
  )


def read(path: arrow_tables.Place, columns: Columns) -> Table:
  """Returns the columns of a table that are read, by their names.

  Those of a folder have its splits, if there are several.

  Raises:
    errors.UserError: if it cannot be read, has no images, or no rows.
  """
  names = column_names(path, columns)
  if columns.image not in names:
    raise _no_column(path, repr(columns.image), names, 'images', 'image')
  wanted = [name for name in columns.wanted() if name in names]
  for name in wanted:
    if names.count(name) > 1:
      raise errors.UserError(
        f'{path} has {names.count(name)} columns {name!r}: rename all but one.'
      )
  if npz_tables.is_npz(path):
    content = npz_tables.read(storage.local_path(path)).table
    table = {name: content[name] for name in wanted}
  elif arrow_tables.reads(path):
    task = choose_task(names, path, columns)
    of_task = columns.of_task(task)
    table, of_row = arrow_tables.read(path, wanted, columns.image, of_task)
    if arrow_tables.is_folder(path):
      table[columns.split] = of_row
  else:
    found = _open(path, columns)
    table = {name: found[name].to_pylist() for name in wanted}
  if not len(table[columns.image]):
    raise errors.UserError(f'{path} has no rows.')
  return table


def has_splits(path: arrow_tables.Place, columns: Columns) -> bool:
  """Whether a table says which images are for the test."""
  if arrow_tables.is_folder(path):
    columns = complete(path, columns)
    names = columns.of_task(columns.task)
    return len(arrow_tables.splits(path, names)) > 1
  return columns.split in column_names(path, columns)


def _open(path: arrow_tables.Place, columns: Columns) -> Any:
  """Returns a pyarrow table of text, the same whatever the task is."""
  texts = dataclasses.replace(columns, task='').wanted()
  return text_tables.read(storage.local_path(path), texts)
