"""Reads the columns of a table: .csv, .tsv, .jsonl or .parquet."""

from collections.abc import Collection, Iterator
import contextlib
import dataclasses
import os
import pathlib
from typing import Any

from vit_jax.configs import common
from vit_jax.configs import labels
from vit_jax.runtime import errors

Table = dict[str, list[Any]]


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
    classes: file with the classes, one a line, in the order of the logits; empty
      for those in the table, sorted.
    separator: what is between the classes of an image, if they are text.
    units: units of the numbers, with commas between them; empty for none.
    task: one of `configs.labels.TASKS`; empty for what the columns tell.
  """

  image: str = 'image'
  label: str = 'label'
  labels: str = 'labels'
  target: str = 'target'
  split: str = 'split'
  classes: str = ''
  separator: str = '|'
  units: str = ''
  task: str = ''

  def of_task(self, task: str) -> list[str]:
    """Returns the columns with the labels of a task."""
    name = getattr(self, labels.COLUMNS[task])
    return [name] if task == labels.MULTICLASS else name.split(',')

  def wanted(self) -> list[str]:
    """Returns all columns that may be read."""
    tasks = [self.task] if self.task else labels.TASKS
    of_tasks = [name for task in tasks for name in self.of_task(task)]
    return [self.image, *of_tasks, self.split]


DEFAULT = Columns()


def is_table(dataset: str) -> bool:
  """Whether a data set is named by the file of a table."""
  return dataset.lower().endswith(common.TABLES)


def row_name(path: os.PathLike | str, row: int) -> str:
  """Returns how a message names a row: the first one after a header is 1."""
  return f'{path}, row {row + 1}'


def column_names(path: pathlib.Path, columns: Columns) -> list[str]:
  """Returns the names of all columns."""
  from pyarrow import csv  # Imported late: only tables need them.
  from pyarrow import parquet

  suffix = path.suffix.lower()
  if suffix == '.jsonl':  # Each row may have others.
    return _open(path, columns).column_names
  with _reading(path):
    if suffix == '.parquet':
      return parquet.read_schema(path).names
    with csv.open_csv(path, **_csv_options(suffix, columns)) as reader:
      return reader.schema.names


def task(path: pathlib.Path, columns: Columns) -> str:
  """Returns the task of a table, one of `configs.labels.TASKS`.

  Raises:
    errors.UserError: if its columns do not tell, or lack what `columns.task` needs.
  """
  return choose_task(column_names(path, columns), path, columns)


def choose_task(
  names: Collection[str], path: os.PathLike | str, columns: Columns
) -> str:
  """Returns the task of a table with the columns `names`, as `task` does."""
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
  return errors.UserError(
    f'{path} has no column {lacks[0]!r}{others}, only {", ".join(names)}. Name the'
    f' one with the {what}: config.columns.{field}=NAME.'
  )


def read(path: pathlib.Path, columns: Columns) -> Table:
  """Returns the columns of a table that are read, by their names.

  Raises:
    errors.UserError: if it cannot be read, has no images, or no rows.
  """
  table = _open(path, columns)
  if columns.image not in table.column_names:
    raise errors.UserError(
      f'{path} has no column {columns.image!r}, only'
      f' {", ".join(table.column_names)}. Name the one with the images:'
      f' config.columns.image=NAME.'
    )
  if not len(table):
    raise errors.UserError(f'{path} has no rows.')
  return {
    name: table[name].to_pylist()
    for name in columns.wanted()
    if name in table.column_names
  }


def _open(path: pathlib.Path, columns: Columns) -> Any:
  """Returns a pyarrow table; of a Parquet file only the columns that are read."""
  from pyarrow import csv  # Imported late: only tables need them.
  from pyarrow import json
  from pyarrow import parquet

  wanted = columns.wanted()
  with _reading(path):
    if path.suffix.lower() == '.parquet':
      names = parquet.read_schema(path).names
      return parquet.read_table(path, columns=[n for n in names if n in wanted])
    if path.suffix.lower() == '.jsonl':
      return json.read_json(path)
    return csv.read_csv(path, **_csv_options(path.suffix.lower(), columns))


def _csv_options(suffix: str, columns: Columns) -> dict[str, Any]:
  import pyarrow as pa  # Imported late: only tables need it.
  from pyarrow import csv

  return {
    'parse_options': csv.ParseOptions(
      delimiter='\t' if suffix == '.tsv' else ',', newlines_in_values=True
    ),
    # Labels such as 007 stay as they are.
    'convert_options': csv.ConvertOptions(
      column_types=dict.fromkeys(columns.wanted(), pa.string()),
      strings_can_be_null=True,
    ),
  }


@contextlib.contextmanager
def _reading(path: pathlib.Path) -> Iterator[None]:
  """Turns an error of reading a table into one line."""
  import pyarrow as pa  # Imported late: only tables need it.

  try:
    yield
  except (OSError, pa.ArrowException) as e:
    reason = getattr(e, 'strerror', None) or errors.first_line(e)
    raise errors.UserError(f'{path} cannot be read: {reason}') from e
