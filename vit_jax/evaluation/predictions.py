"""What a model says of labelled images, and how right that is."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable
import unicodedata

from jaxtyping import Int
import numpy as np
import tqdm

from vit_jax.data import sources
from vit_jax.data import subsets
from vit_jax.evaluation import probes
from vit_jax.evaluation import scores
from vit_jax.runtime import errors

_TOP = 5


@runtime_checkable
class Classifier(Protocol):
  """What is evaluated: `vit_jax.predictor.Predictor`, or what acts like it."""

  labels: list[str]

  def probabilities(self, images: Any) -> Iterator[tuple[int, np.ndarray]]:
    """Yields the place of each image that is read, and its probabilities."""

  def iter_features(self, images: Any) -> Iterator[tuple[int, np.ndarray]]:
    """Yields the place of each image that is read, and its features."""


def predictions(
  predictor: Classifier, source: sources.LabelledSource
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
  predictor: Classifier,
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


def summary(
  p: scores.Predictions, class_names: Sequence[str]
) -> dict[str, Any]:
  """Returns all that `scores` tells, as JSON has it."""
  return {
    **scores.summary(p),
    'most_confused': scores.confused(p, class_names, most=10),
    'reliability': scores.reliability(p),
    'classes': scores.per_class(p, class_names),
    'labels': list(class_names),
    'confusion': scores.confusion(p).tolist(),
  }
