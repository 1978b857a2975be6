"""Classifies images with a trained model.

vit-jax predict --model=/tmp/digits/artifact photo.jpg folder/ 'photos/**/*.jpg'

An image is a file, a folder, a pattern, an address (https://...), or - for an image
on standard input. Prints the most probable classes of each.
"""

from collections.abc import Sequence

from absl import flags
from absl import logging

from vit_jax.commands import output
from vit_jax.commands import predictor_flags
from vit_jax.data import inputs
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import storage


def read_labels(path: str, count: int) -> list[str]:
  """Returns the names of `count` classes, one a line, as in `labels.txt`.

  Raises:
    errors.UserError: if the file cannot be read or has more or fewer lines.
  """
  try:
    labels = files.read_lines(storage.local_path(path))
  except (OSError, UnicodeDecodeError) as e:
    raise errors.UserError(f'labels={path} cannot be read: {e}.') from e
  if len(labels) != count:
    raise errors.UserError(
      f'labels={path} has {len(labels)} lines, but the model has {count} classes.'
    )
  return labels


def define_flags() -> None:
  """Defines the flags of `vit-jax predict`."""
  predictor_flags.define_flags()
  output.define_flags()
  flags.DEFINE_string(
    'labels', None, 'File with names of the classes, one a line.'
  )


def main(argv: Sequence[str]) -> None:
  options, names = flags.FLAGS, inputs.find(argv[1:])
  predictor = predictor_flags.from_flags()
  if options.labels:
    predictor.labels = read_labels(options.labels, len(predictor.labels))
  predictions = predictor.predict_names(names, top_k=options.top_k)
  output.show(predictions, names, as_json=options.json, as_csv=options.csv)
  if predictor.skipped:
    logging.warning('%d images were skipped.', len(predictor.skipped))
