"""Classifies images with the artifact of a run, or any other weights.

vit-jax predict --model=/tmp/digits/artifact IMAGE...

IMAGE is a file, a folder, a pattern such as 'photos/**/*.jpg', an address, or - for
an image that comes through standard input.
"""

from collections.abc import Iterator, Sequence
import json

from absl import flags
from absl import logging

from vit_jax import predictor as predictor_lib
from vit_jax.commands import output
from vit_jax.commands import predictor_flags
from vit_jax.data import inputs
from vit_jax.runtime import errors
from vit_jax.runtime import storage


def predict(
  predictor: predictor_lib.Predictor, names: Sequence[str], *, top_k: int
) -> Iterator[output.Named]:
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


def define_flags() -> None:
  """Defines the flags of `vit-jax predict`."""
  predictor_flags.define_flags()
  output.define_flags()
  flags.DEFINE_string(
    'labels', None, 'File with the names of the classes, one a line.'
  )


def main(argv: Sequence[str]) -> None:
  options, names = flags.FLAGS, inputs.find(argv[1:])
  predictor = predictor_flags.from_flags()
  if options.labels:
    predictor.labels = read_labels(options.labels, len(predictor.labels))
  predictions = predict(predictor, names, top_k=options.top_k)
  output.show(predictions, names, as_json=options.json, as_csv=options.csv)
