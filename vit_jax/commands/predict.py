"""Classifies images with a trained model.

vit-jax predict --model=/tmp/digits/artifact photo.jpg folder/ 'photos/**/*.jpg'

An image is a file, a folder, a pattern, an address (https://...), or - for an image
on standard input. Prints the most probable classes of each, or those that reach their
threshold, or numbers, as the model was trained. --output=FILE writes a row
an image instead, with the probabilities of all classes, confidence, margin (between
the two most probable classes) and entropy (in nats): .csv, .jsonl or .parquet.
--sort=unsure puts the images with the smallest margin first; --html=FILE does too, and
writes a page of the first ones with their attention. --model=A,B averages models,
--mirror each image with its mirror image.
"""

from collections.abc import Sequence
import dataclasses
import functools

from absl import flags
from absl import logging

from vit_jax import predictor as predictor_lib
from vit_jax.commands import output
from vit_jax.commands import predictor_flags
from vit_jax.data import inputs
from vit_jax.evaluation import ensemble
from vit_jax.evaluation import prediction_files
from vit_jax.evaluation import ranking
from vit_jax.reporting import unsure_page
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import storage
from vit_jax.weights import record as weights_lib


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
  return weights_lib.distinct(labels)


def _write(
  rows: ranking.Rows,
  names: Sequence[str],
  predictor: predictor_lib.Predictor | ensemble.Ensemble,
) -> None:
  table = prediction_files.rows_of(
    rows, names, predictor.weights, predictor.skipped
  )
  path = flags.FLAGS.output
  prediction_files.write(table, path)
  count = sum(not row['skipped'] for row in table)
  print(f'The predictions of {count} images are in {path}.')


def _write_page(
  rows: Sequence[ranking.Row],
  names: Sequence[str],
  predictor: predictor_lib.Predictor | ensemble.Ensemble,
  drawn_by: predictor_lib.Predictor,
) -> None:
  path = flags.FLAGS.html
  shown = unsure_page.write(
    path, rows, names, predictor.weights, drawn_by, predictor.skipped
  )
  logging.info('The %d least sure images are in %s.', shown, path)


def define_flags() -> None:
  """Defines the flags of `vit-jax predict`."""
  predictor_flags.define_averaging_flags()
  output.define_flags()
  flags.DEFINE_string('output', None, 'File for a row an image.')
  flags.DEFINE_string('html', None, 'Page of the least sure images.')
  flags.DEFINE_enum(
    'sort', None, ['unsure'], 'Order of the images; by default as given.'
  )
  flags.DEFINE_string(
    'labels', None, 'File with names of the classes, one a line.'
  )


def main(argv: Sequence[str]) -> None:
  options = flags.FLAGS
  if options.output:  # Before anything takes long.
    prediction_files.check(options.output)
    for name in ('json', 'csv', 'top_k'):
      if options[name].present:
        raise errors.UserError(
          f'--{name} is for printed predictions, but --output writes a file, whose'
          f' ending chooses the format, with all classes.'
        )
  if options.html:
    unsure_page.check(options.html)
  names = inputs.find(argv[1:])
  models = predictor_flags.all_weights_from_flags()
  predictor, first = predictor_flags.averaged(models)
  if options.labels:
    labels = read_labels(options.labels, len(predictor.labels))
    predictor.weights = dataclasses.replace(
      predictor.weights, class_names=labels
    )
  rows = ranking.at_least_one(predictor.probabilities(names), len(names))
  if options.sort or options.html:
    rows = ranking.unsure_first(rows, predictor.weights)
  if options.html:
    kept = list(rows)
    _write_page(kept, names, predictor, first)
    rows = iter(kept)
  if options.output:
    _write(rows, names, predictor)
  else:
    choose = functools.partial(
      ranking.choose, weights=predictor.weights, top_k=options.top_k
    )
    output.show(
      ranking.with_names(rows, names, choose),
      names,
      as_json=options.json,
      as_csv=options.csv,
      units=weights_lib.units(predictor.weights),
    )
  if predictor.skipped:
    logging.warning('%d images were skipped.', len(predictor.skipped))
