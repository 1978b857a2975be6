"""Predictions as a table, JSON or CSV on standard output."""

from collections.abc import Iterable, Sequence
import csv
import json
import sys

from absl import flags

from vit_jax.evaluation import ranking
from vit_jax.runtime import errors

Named = tuple[str, ranking.Prediction]

_COLUMNS = ('image', 'rank', 'class', 'probability')


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
) -> None:
  """Prints predictions as they come: a table, JSON lines or CSV.

  The longest of `names`, those of all images, sets the width of the table.
  """
  if as_json and as_csv:
    raise errors.UserError('Choose one of --json and --csv.')
  writer = csv.writer(sys.stdout)
  if as_csv:
    writer.writerow(_COLUMNS)
  width = max((len(_printable(name)) for name in names), default=0)
  for name, prediction in predictions:
    if as_json:
      rows = [{'class': label, 'probability': p} for label, p in prediction]
      print(json.dumps({'image': name, 'predictions': rows}))
    elif as_csv:
      for rank, (label, p) in enumerate(prediction, 1):
        writer.writerow((name, rank, label, p))
    else:
      for i, (label, p) in enumerate(prediction):
        shown = '' if i else _printable(name)
        print(f'{shown:{width}}  {p:7.2%}  {_printable(label)}')


def _printable(name: str) -> str:
  """Returns a name in one line without control characters for a terminal."""
  return ''.join(
    c if c.isprintable() else c.encode('unicode_escape').decode() for c in name
  )
