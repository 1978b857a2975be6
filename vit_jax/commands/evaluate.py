"""Evaluates weights on labelled images: accuracy, calibration, confusions.

python -m vit_jax.evaluate --artifact=/tmp/run/artifact --dataset=/path/to/images
python -m vit_jax.evaluate --artifact=ViT-B_16-224 --dataset=imagenet2012 \
  --split=validation --real --output=/tmp/b16.json

DATASET is a folder with {split}/<class>/<image>, or a name as in `config.dataset`:
imagenet_v2 say, once `vit_jax.data.prepare` has prepared it. What is printed is a
part of the JSON that --output writes, which has every class and all confusions,
rows of [class, taken for, examples], by their numbers in `labels`.
"""

from collections.abc import Sequence
import json
from typing import Any
import unicodedata

from absl import flags
from absl import logging
from jaxtyping import Int
import numpy as np
import tqdm

from vit_jax import predictor as predictor_lib
from vit_jax.commands import predictor_flags
from vit_jax.data import real_labels
from vit_jax.data import sources
from vit_jax.data import subsets
from vit_jax.evaluation import probes
from vit_jax.evaluation import scores
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import storage

_TOP = 5


def predictions(
  predictor: predictor_lib.Predictor, source: sources.LabelledSource
) -> scores.Predictions:
  """Returns what a model says of labelled images.

  Raises:
    errors.UserError: if their classes are not the model's, or at an image that
      cannot be decoded.
  """
  classes = class_map(source.class_names, predictor.labels)
  labels = classes[source.labels()]
  size = min(_TOP, len(predictor.labels))
  places, best, confidence, probability = [], [], [], []
  rows = predictor.probabilities(source)
  for place, row in tqdm.tqdm(rows, total=len(source), disable=None):
    top = np.argpartition(-row, size - 1)[:size]
    top = top[np.argsort(-row[top], kind='stable')]
    places.append(place)
    best.append(top)
    confidence.append(row[top[0]])
    probability.append(row[labels[place]])
  if not places:
    raise errors.UserError('None of the images can be decoded.')
  return scores.Predictions(
    places=np.array(places),
    labels=labels[places],
    best=np.stack(best),
    confidence=np.array(confidence),
    probability=np.array(probability),
  )


def class_map(
  dataset: Sequence[str], model: Sequence[str]
) -> Int[np.ndarray, ' n']:
  """Returns the class of the model for each class of a data set.

  By their names, of which the data set may lack some. Or by their numbers: if the
  data set numbers its classes, as ImageNet-V2's folders do; or if the weights
  know only how many there are, and the data set has as many.

  Raises:
    errors.UserError: if neither is possible.
  """
  # Labels of a model may have accents of their own, as macOS writes names.
  dataset = [unicodedata.normalize('NFC', name) for name in dataset]
  index = {unicodedata.normalize('NFC', x): i for i, x in enumerate(model)}
  if set(dataset) <= set(index):
    return np.array([index[name] for name in dataset])
  if all(n.isdecimal() and int(n) < len(model) for n in dataset):
    return np.array([int(name) for name in dataset])
  is_numbered = list(model) == [f'class {i}' for i in range(len(model))]
  if is_numbered and len(dataset) == len(model):
    return np.arange(len(dataset))
  other = [name for name in dataset if name not in index]
  raise errors.UserError(
    f'The images have {len(dataset)} classes, the model {len(model)};'
    f' {len(other)} of them it does not know: {", ".join(other[:3])}. It has'
    f' {", ".join(model[:3])}, ... Is it of another data set?'
  )


def probe(
  predictor: predictor_lib.Predictor,
  names: Sequence[str],
  train: sources.LabelledSource,
  test: sources.LabelledSource,
) -> dict[str, float]:
  """Returns the accuracies of classifiers fitted to features, see `probes`.

  Args:
    predictor: the model.
    names: 'knn', 'linear', '10shot' or any number of shots.
    train: what they are fitted to.
    test: what they are evaluated on.
  """
  known = {}

  def read(source: sources.LabelledSource) -> tuple[np.ndarray, np.ndarray]:
    rows = list(predictor.iter_features(source))
    if not rows:
      raise errors.UserError('None of the images can be decoded.')
    places, features = zip(*rows, strict=True)
    return np.stack(features), source.labels()[list(places)]

  accuracies, unseen = {}, read(test)
  for name in names:
    shots = probes.shots(name)
    if shots not in known:
      known[shots] = read(subsets.few_shots(train, shots) if shots else train)
    model = probes.fit(name, *known[shots])
    accuracies[f'accuracy_{name}'] = float(model.score(*unseen))
  return accuracies


def report(p: scores.Predictions, class_names: Sequence[str]) -> dict[str, Any]:
  """Returns all that `scores` tells, as JSON has it."""
  return {
    **scores.summary(p),
    'most_confused': scores.confused(p, class_names, most=10),
    'reliability': scores.reliability(p),
    'classes': scores.per_class(p, class_names),
    'labels': list(class_names),
    'confusion': scores.confusion(p).tolist(),
  }


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
  p = predictions(predictor, source)
  result = {
    'artifact': options.artifact,
    'dataset': options.dataset,
    'split': options.split,
    'skipped': len(source) - len(p.labels),
    'unread': getattr(source, 'unread', {}),
    **report(p, predictor.labels),
  }
  if options.real:
    accepted = real_labels.read(real_file, source, p.places)
    result |= scores.any_of(p, accepted)
  if options.probes:
    train = sources.get_source(
      options.dataset, options.train_split, data_dir=options.tfds_data_dir
    )
    result |= probe(predictor, options.probes, train, source)
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
