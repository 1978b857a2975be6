"""Evaluates weights on labelled images: accuracy, calibration, confusions.

vit-jax evaluate --model=/tmp/run/artifact --dataset=/path/to/images
vit-jax evaluate --model=ViT-B_16-224 --dataset=imagenet2012 \
  --split=validation --real --output=/tmp/b16.json

DATASET is a folder with {split}/<class>/<image>, or a name as in `config.dataset`:
imagenet_v2 say, once `vit-jax prepare` has prepared it. What is printed is a
part of the JSON that --output writes, which has every class and all confusions,
rows of [class, taken for, examples], by their numbers in `labels`.
"""

from collections.abc import Sequence
import json

from absl import flags
from absl import logging

from vit_jax.commands import predictor_flags
from vit_jax.data import real_labels
from vit_jax.data import sources
from vit_jax.evaluation import predictions
from vit_jax.evaluation import scores
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import storage

_PRINTED_NOT = ('reliability', 'classes', 'labels', 'confusion')


def define_flags() -> None:
  """Defines the flags of `vit-jax evaluate`."""
  predictor_flags.define_flags()
  flags.DEFINE_string('dataset', None, 'Folder or name.', required=True)
  flags.DEFINE_string('split', 'test', 'What is evaluated.')
  flags.DEFINE_string('train_split', 'train', 'What probes are fitted to.')
  flags.DEFINE_string(
    'tfds_data_dir', None, 'Where data sets and ReaL labels are.'
  )
  flags.DEFINE_bool('real', False, 'Also by ReaL labels, of ImageNet.')
  flags.DEFINE_string('real_labels', real_labels.URL, 'Their file or address.')
  flags.DEFINE_list(
    'probes', [], 'knn, linear, 10shot: classifiers of features.'
  )
  flags.DEFINE_string('output', None, 'JSON file for all of it.')


def main(argv: Sequence[str]) -> None:
  options = flags.FLAGS
  if len(argv) > 1:
    raise errors.UserError(f'{argv[1]}: images are given by --dataset.')
  source = sources.get_source(
    options.dataset, options.split, data_dir=options.tfds_data_dir
  )
  if options.real:  # Before anything takes long.
    real_file = real_labels.find(options.real_labels, options.tfds_data_dir)
  predictor = predictor_flags.from_flags()
  p = predictions.predictions(predictor, source)
  result = {
    'model': options.model,
    'dataset': options.dataset,
    'split': options.split,
    'skipped': len(source) - len(p.labels),
    'unread': getattr(source, 'unread', {}),
    **predictions.summary(p, predictor.labels),
  }
  if options.real:
    accepted = real_labels.read(real_file, source, p.places)
    result |= scores.any_of(p, accepted)
  if options.probes:
    train = sources.get_source(
      options.dataset, options.train_split, data_dir=options.tfds_data_dir
    )
    result |= predictions.probe(predictor, options.probes, train, source)
  short = {k: v for k, v in result.items() if k not in _PRINTED_NOT}
  print(json.dumps(short, indent=2))
  if options.output:
    path = storage.local_path(options.output)
    try:
      path.parent.mkdir(parents=True, exist_ok=True)
      files.write_json(result, path)
    except OSError as e:
      raise errors.UserError(f'{path} cannot be written: {e.strerror}.') from e
    logging.info('Everything is in %s.', path)
