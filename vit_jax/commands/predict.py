"""Classifies images with the artifact of a run, or any other weights.

python -m vit_jax.predict --artifact=/tmp/digits/artifact IMAGE...

IMAGE is a file, a folder, a pattern such as 'photos/**/*.jpg', an address, or - for
an image that comes through standard input.
"""

from collections.abc import Iterable, Iterator, Sequence
import csv
import json
import sys

from absl import flags
from absl import logging

from vit_jax import predictor as predictor_lib
from vit_jax.commands import predictor_flags
from vit_jax.data import inputs
from vit_jax.runtime import errors
from vit_jax.runtime import storage

Named = tuple[str, predictor_lib.Prediction]

_COLUMNS = ('image', 'rank', 'class', 'probability')


def predict(
  predictor: predictor_lib.Predictor, names: Sequence[str], *, top_k: int
) -> Iterator[Named]:
  """Yields the name of each image and its most probable classes.

  Raises:
    errors.UserError: if none can be decoded.
  """
  count = 0
  for place, row in predictor.probabilities(names):
    yield names[place], predictor.best(row, top_k)
    count += 1
  if not count:
    raise errors.UserError(f'None of {len(names)} images can be decoded.')
  if predictor.skipped:
    logging.warning('%d images were skipped.', len(predictor.skipped))


def read_labels(path: str, count: int) -> list[str]:
  """Returns the lines of a file.

  Raises:
    errors.UserError: if it cannot be read or has not `count` lines.
  """
  try:
    lines = storage.local_path(path).read_text(encoding='utf-8').splitlines()
  except (OSError, UnicodeDecodeError) as e:
    raise errors.UserError(f'labels={path} cannot be read: {e}.') from e
  if len(lines) != count:
    raise errors.UserError(
      f'labels={path} has {len(lines)} lines, the model {count} classes.'
    )
  return [_label(line) for line in lines]


def _label(line: str) -> str:
  """Returns the name in a line, which `files.write_lines` may have escaped."""
  try:
    name = json.loads(line) if line.startswith('"') else line
  except ValueError:
    return line
  return name


def show(
  predictions: Iterable[Named],
  names: Sequence[str],
  *,
  as_json: bool,
  as_csv: bool,
) -> None:
  """Prints predictions as they come: a table, JSON lines or CSV.

  Args:
    predictions: of images.
    names: of all images, for the width of the first column.
    as_json: an object an image.
    as_csv: a row a class.

  Raises:
    errors.UserError: if both are wanted.
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
  """Returns a name in one line, which changes no settings of a terminal."""
  return ''.join(
    c if c.isprintable() else c.encode('unicode_escape').decode() for c in name
  )


def define_flags() -> None:
  """Defines the flags of `vit-jax predict`."""
  predictor_flags.define_flags()
  flags.DEFINE_integer('top_k', 5, 'Classes shown.', lower_bound=1)
  flags.DEFINE_bool('json', False, 'Print a JSON object an image.')
  flags.DEFINE_bool('csv', False, 'Print CSV, a row a class.')
  flags.DEFINE_string(
    'labels', None, 'File with the names of the classes, one a line.'
  )


def main(argv: Sequence[str]) -> None:
  options, names = flags.FLAGS, inputs.find(argv[1:])
  predictor = predictor_flags.from_flags()
  if options.labels:
    predictor.labels = read_labels(options.labels, len(predictor.labels))
  predictions = predict(predictor, names, top_k=options.top_k)
  show(predictions, names, as_json=options.json, as_csv=options.csv)
