"""Evaluates a model on labelled images: accuracy, calibration, confusions, errors.

vit-jax evaluate --model=/tmp/run/artifact --dataset=/path/to/images
vit-jax evaluate --model=ViT-B_16-224 --dataset=imagenet2012 \
  --split=validation --real --output=/tmp/b16.json

The data set is a folder with {split}/<class>/<image>, a table, shards, a data set of
Hugging Face, or a name that `vit-jax prepare` has prepared, such as imagenet_v2. Of
one without a test split, the images that the run left out are evaluated, or the last 20 %
if the weights do not say which; --split=train evaluates all.

The JSON file that --output names also has scores of every class, calibration by bins,
and all confusions: rows of [class, predicted class, images], numbered as in `labels`.
Metrics have the names of metrics.jsonl. --probes also measures models without a head, or
with one of other classes. --predictions=FILE writes a row an image, as
`vit-jax predict --output` does, with its label. --model=A,B averages models, --mirror each
image with its mirror image.
"""

from collections.abc import Sequence
import json
import pathlib
from typing import Any

from absl import flags
from absl import logging

from vit_jax import predictor as predictor_lib
from vit_jax.commands import dataset_flags
from vit_jax.commands import predictor_flags
from vit_jax.configs import labels as labels_lib
from vit_jax.data import label_texts
from vit_jax.data import real_labels
from vit_jax.data import sources
from vit_jax.evaluation import ensemble
from vit_jax.evaluation import labelled
from vit_jax.evaluation import prediction_files
from vit_jax.evaluation import probes
from vit_jax.evaluation import ranking
from vit_jax.evaluation import scores
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.weights import record as weights_lib

_NOT_PRINTED = ('reliability', 'classes', 'labels', 'confusion')


def define_flags() -> None:
  """Defines the flags of `vit-jax evaluate`."""
  predictor_flags.define_averaging_flags()
  flags.DEFINE_string(
    'dataset', None, 'Folder or name of the images.', required=True
  )
  flags.DEFINE_string('split', 'test', 'Split to evaluate.')
  flags.DEFINE_string('train_split', 'train', 'Split to fit probes to.')
  dataset_flags.define_flags()
  flags.DEFINE_bool(
    'real', False, 'Also evaluate with ReaL labels of ImageNet.'
  )
  flags.DEFINE_string(
    'real_labels', real_labels.URL, 'File or address of the ReaL labels.'
  )
  flags.DEFINE_list(
    'probes', [], 'Classifiers to fit to features: knn, linear, 10shot, ...'
  )
  flags.DEFINE_string('output', None, 'JSON file for all results.')
  flags.DEFINE_string(
    'predictions', None, 'File for a row an image: .csv, .jsonl or .parquet.'
  )


def _kept(
  rows: ranking.Rows,
  predictor: predictor_lib.Predictor | ensemble.Ensemble,
  source: sources.LabelledSource,
) -> ranking.Rows:
  """Yields all rows; writes them to --predictions, with the model's class names."""
  model = predictor.weights.class_names
  names = [model[k] for k in scores.class_map(source.class_names, model)]
  kept = list(ranking.at_least_one(rows, len(source)))
  table = prediction_files.rows_of(
    iter(kept),
    source.names(),
    predictor.weights,
    predictor.skipped,
    labels=label_texts.of_source(source, names),
  )
  prediction_files.write(table, flags.FLAGS.predictions, 'predictions')
  yield from kept


def _check(models: Sequence[weights_lib.Weights]) -> None:
  """Raises `errors.UserError` if models or flags cannot be evaluated."""
  options, task = flags.FLAGS, models[0].task
  if not options.probes:  # Before the data set, which may be of captions.
    for weights in models:
      weights_lib.check_can_predict(weights)
  if options['real_labels'].present and not options.real:
    raise errors.UserError('--real_labels is for --real, which is not given.')
  if options.probes and len(models) > 1:
    raise errors.UserError('--probes need the features of one model.')
  if task != labels_lib.MULTICLASS and (options.real or options.probes):
    raise errors.UserError(
      f'--real and --probes need one class an image, the task is {task}.'
    )


def _has_fitting_head(
  weights: weights_lib.Weights, source: sources.LabelledSource
) -> bool:
  """Whether the model has a head of the source's classes; probes need none."""
  options = flags.FLAGS
  if not options.probes or options.predictions or options.real:
    return True  # If it has none, the scores say why.
  try:
    weights_lib.check_can_predict(weights)
    scores.class_map(source.class_names, weights.class_names)
  except errors.UserError as e:
    logging.info('Only the probes are measured. %s', e)
    return False
  return True


def main(argv: Sequence[str]) -> None:
  options = flags.FLAGS
  if len(argv) > 1:
    raise errors.UserError(f'{argv[1]}: name the images with --dataset.')
  output = None
  if options.output:  # Before anything takes long.
    output = files.output_path(options.output, ('.json',), 'output')
  if options.predictions:
    prediction_files.check(options.predictions, 'predictions')
  models = predictor_flags.all_weights_from_flags()
  _check(models)
  data_dir, columns = options.tfds_data_dir, dataset_flags.columns(models[0])
  # Without probes, --train_split only decides the test images of unsplit data sets.
  is_alone = options['train_split'].present and not options.probes
  if is_alone and not (
    options.split == 'test' and sources.is_unsplit(options.dataset, columns)
  ):
    raise errors.UserError('--train_split is for --probes, which is not given.')
  train_split, split = labelled.splits(
    models, options.dataset, options.train_split, options.split, columns
  )
  source = sources.get_source(
    options.dataset, split, data_dir=data_dir, columns=columns
  )
  labelled.check_task(models[0], source)
  if options.probes:
    train = sources.get_source(
      options.dataset, train_split, data_dir=data_dir, columns=columns
    )
    sources.refuse_overlap(
      {'train_split': train_split, 'split': split}, [train, source]
    )
  real_file = None
  if options.real:  # Before anything takes long.
    real_labels.numbers(models[0].class_names)
    real_file = real_labels.find(options.real_labels, data_dir)
  predictor, first = predictor_flags.averaged(models)
  result = {
    'model': options.model,
    'dataset': options.dataset,
    'split': split,
    'unread': getattr(source, 'unread', {}),
  }
  if _has_fitting_head(models[0], source):
    rows = predictor.probabilities(source)
    if options.predictions:
      rows = _kept(rows, predictor, source)
    result |= labelled.all_scores(rows, predictor.weights, source, real_file)
  if options.probes:
    result |= probes.of_rows(first.iter_features, options.probes, train, source)
  _show(result, output)


def _show(result: dict[str, Any], path: pathlib.Path | None) -> None:
  """Prints a result; writes all of it to --output."""
  short = {k: v for k, v in result.items() if k not in _NOT_PRINTED}
  print(json.dumps(short, indent=2))
  if path:
    with errors.writing(path):
      path.parent.mkdir(parents=True, exist_ok=True)
      files.write_json(result, path)
    logging.info('All results are in %s.', path)
