"""Predictions as a table, JSON or CSV on standard output."""

from collections.abc import Iterable, Mapping, Sequence
import csv
import json
import sys
from typing import Any

from absl import flags

from vit_jax.data import label_texts
from vit_jax.evaluation import ranking
from vit_jax.runtime import errors

Named = tuple[str, ranking.Prediction]

_COLUMNS = ('image', 'rank', 'class', 'probability')
_NUMBER_COLUMNS = ('image', 'name', 'value', 'unit')


def define_flags() -> None:
  """Defines the flags that choose the number of classes and the format."""
  flags.DEFINE_integer('top_k', 5, 'Classes shown.', lower_bound=1)
  flags.DEFINE_bool('json', False, 'Print a JSON object for each image.')
  flags.DEFINE_bool('csv', False, 'Print CSV, a row for each class.')


def show(
  predictions: Iterable[Named],
  names: Sequence[str],
  *,
  as_json: bool,
  as_csv: bool,
  units: Mapping[str, str] | None = None,
) -> None:
  """Prints predictions as they come: a table, JSON lines or CSV.

  Args:
    predictions: name and prediction of each image.
    names: names of all images; the longest sets the width of the table.
    as_json: whether to print JSON lines.
    as_csv: whether to print CSV.
    units: unit of each number that is predicted; None if classes are.
  """
  if as_json and as_csv:
    raise errors.UserError('Choose one of --json and --csv.')
  writer = csv.writer(sys.stdout)
  if as_csv:
    writer.writerow(_COLUMNS if units is None else _NUMBER_COLUMNS)
  width = max((len(_printable(name)) for name in names), default=0)
  for name, prediction in predictions:
    if as_json:
      rows = [_entry(*row, units) for row in prediction]
      print(json.dumps({'image': name, 'predictions': rows}))
    elif as_csv:
      for rank, (label, value) in enumerate(prediction, 1):
        if units is None:
          writer.writerow((name, rank, label, value))
        else:
          writer.writerow((name, label, value, units[label]))
      if not prediction:
        writer.writerow((name, '', '', ''))
    else:
      for i, row in enumerate(prediction):
        shown = '' if i else _printable(name)
        print(f'{shown:{width}}  {_line(*row, units)}')
      if not prediction:
        print(f'{_printable(name):{width}}  no class reaches its threshold')


def _entry(
  label: str, value: float, units: Mapping[str, str] | None
) -> dict[str, Any]:
  if units is None:
    return {'class': label, 'probability': value}
  return {'name': label, 'value': value, 'unit': units[label]}


def _line(label: str, value: float, units: Mapping[str, str] | None) -> str:
  if units is None:
    return f'{value:7.2%}  {_printable(label)}'
  return f'{label_texts.number(value):>10} {units[label]}  {_printable(label)}'


def _printable(name: str) -> str:
  """Returns a name in one line without control characters for a terminal."""
  return ''.join(
    c if c.isprintable() else c.encode('unicode_escape').decode() for c in name
  )
