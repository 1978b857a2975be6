"""Names and formulas of measurements, and the predictions they are made from."""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
from typing import Any

from absl import logging
from jaxtyping import Array, Bool, Float, Int
import numpy as np
import tqdm

from vit_jax.configs import labels as labels_lib
from vit_jax.data import class_names as names_lib
from vit_jax.data import sources
from vit_jax.runtime import errors

# In metrics.jsonl, in artifacts, and in what `vit-jax evaluate` prints.
ACCURACY, TOP5, LOSS = 'accuracy_test', 'top5_test', 'loss_test'
EXAMPLES, SKIPPED = 'examples_test', 'skipped_test'
# Means over classes of recall and of F1; Cohen's kappa with quadratic weights.
BALANCED, F1, KAPPA = 'balanced_accuracy_test', 'f1_test', 'kappa_test'
# Recall@1 and recall@5 from text to image.
TO_IMAGE, TO_IMAGE_TOP5 = 'text_to_image_test', 'text_to_image_top5_test'
# The same measurement of the moving average of the parameters.
AVERAGED = '_ema'

_TOP = 5
_BINS = 15

Classes = Int[Array | np.ndarray, ' N']


def hits(
  best: Int[Array | np.ndarray, 'N k'], labels: Classes
) -> dict[str, Bool[Array | np.ndarray, ' N']]:
  """Returns whether each label is the first, and one of the first 5, of `best`."""
  right = best[:, :_TOP] == labels[:, None]
  return {ACCURACY: right[:, 0], TOP5: right.any(axis=1)}


def quality(metrics: Mapping[str, float], metric: str) -> float:
  """Returns a metric so that the largest is best: the negative of an error."""
  return -metrics[metric] if metric in labels_lib.ERRORS else metrics[metric]


@dataclasses.dataclass(frozen=True)
class ByClass:
  """Counts of N images, from which scores that heed classes follow.

  Attributes:
    examples: images of each class.
    correct: images of each class that are predicted as it.
    predicted: images that are predicted as each class.
    distance: sum of the squares of label - predicted class.
  """

  examples: Float[np.ndarray, ' K']
  correct: Float[np.ndarray, ' K']
  predicted: Float[np.ndarray, ' K']
  distance: float

  def scores(self) -> dict[str, float]:
    """Returns the means over classes, and kappa, as scikit-learn defines them.

    Classes without images do not count, but for F1 those that are predicted.
    """
    seen, any_ = self.examples > 0, self.examples + self.predicted > 0
    recall = self.correct[seen] / self.examples[seen]
    f1 = 2 * self.correct[any_] / (self.examples + self.predicted)[any_]
    # What the distance would be if labels and predictions were independent.
    powers = np.arange(len(self.examples), dtype=float) ** [[0], [1], [2]]
    (n, x, xx), (_, y, yy) = powers @ self.examples, powers @ self.predicted
    chance = xx + yy - 2 * x * y / n
    return {
      BALANCED: float(recall.mean()),
      F1: float(f1.mean()),
      KAPPA: float(1 - self.distance / chance) if chance else 1.0,
    }


@dataclasses.dataclass(frozen=True)
class Predictions:
  """Predictions for N labelled images.

  Attributes:
    places: indices of the images in their source.
    labels: true classes.
    best: the k most probable classes, the best first; k is 5, or the number of
      classes if that is less.
    confidence: probability of the best class.
    probability: probability of the label.
  """

  places: Int[np.ndarray, ' N']
  labels: Int[np.ndarray, ' N']
  best: Int[np.ndarray, 'N k']
  confidence: Float[np.ndarray, ' N']
  probability: Float[np.ndarray, ' N']

  @property
  def correct(self) -> Bool[np.ndarray, ' N']:
    """Whether the best class is the label."""
    return self.best[:, 0] == self.labels


def predict(
  rows: Iterable[tuple[int, Float[np.ndarray, ' K']]],
  class_names: Sequence[str],
  source: sources.LabelledSource,
) -> Predictions:
  """Returns the predictions for the images of a source.

  `rows` are those of `Predictor.probabilities`: index and probabilities of each
  decoded image. `class_names` are those of the model.

  Raises:
    errors.UserError: if the model does not know the classes, or no image can be
      decoded.
  """
  labels = class_map(source.class_names, class_names)[source.labels()]
  places, best, confidence, probability = [], [], [], []
  for place, row in tqdm.tqdm(rows, total=len(source), disable=None):
    top = np.argsort(-row, kind='stable')[:_TOP]
    places.append(place)
    best.append(top)
    confidence.append(row[top[0]])
    probability.append(row[labels[place]])
  if not places:
    raise errors.UserError('None of the images can be decoded.')
  return Predictions(
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

  Classes are matched by `class_names.comparable` names; the data set may have fewer.
  If no name matches, numbers do: where the data set numbers its classes from 0, as
  ImageNet-V2's folders do, or where the weights have no names and either the data
  set has numbers or as many classes.

  Raises:
    errors.UserError: if the classes match neither way.
  """
  dataset, known = names_lib.comparable(dataset, model)
  index = {name: i for i, name in enumerate(known)}
  if set(dataset) <= set(index):
    return np.array([index[name] for name in dataset])
  is_numbered = list(model) == names_lib.numbered(len(model))
  are_places = all(n.isdecimal() and int(n) < len(model) for n in dataset)
  if are_places and (is_numbered or _may_be_places(dataset, known)):
    logging.info(
      'The images number their classes: 0 is %r of the model.', model[0]
    )
    return np.array([int(name) for name in dataset])
  if is_numbered and len(dataset) == len(model):
    return np.arange(len(dataset))
  unknown = [name for name in dataset if name not in index]
  raise errors.UserError(
    f'The images have {len(dataset)} classes, the model has {len(model)}.'
    f' It does not know {len(unknown)} of them: {", ".join(unknown[:3])}. It knows'
    f' {", ".join(model[:3])}, ... Was it trained on another data set?'
  )


def _may_be_places(dataset: Sequence[str], model: Sequence[str]) -> bool:
  """Whether a data set numbers classes from 0 and the model has no numeric names."""
  return '0' in dataset and not any(name.isdecimal() for name in model)


def summary(p: Predictions) -> dict[str, int | float]:
  """Returns the scores of all images together.

  `nll` is the mean of -log(probability of the label), `ece` the expected
  calibration error (arXiv:1706.04599, Sec. 2) in 15 bins.
  """
  gaps = [
    row['examples'] * abs(row['accuracy'] - row['confidence'])
    for row in reliability(p)
  ]
  return {
    EXAMPLES: len(p.labels),
    **{k: float(v.mean()) for k, v in hits(p.best, p.labels).items()},
    **_by_class(p).scores(),
    'nll': float(-np.log(np.maximum(p.probability, 1e-12)).mean()),
    'ece': float(sum(gaps) / len(p.labels)),
    'confidence': float(p.confidence.mean()),
  }


def _by_class(p: Predictions) -> ByClass:
  best = p.best[:, 0]
  count = 1 + max(p.labels.max(), best.max())
  examples, correct, predicted = (
    np.bincount(x, minlength=count).astype(float)
    for x in (p.labels, best[p.correct], best)
  )
  distance = float(np.square(p.labels - best).sum())
  return ByClass(examples, correct, predicted, distance)


def details(p: Predictions, class_names: Sequence[str]) -> dict[str, Any]:
  """Returns calibration, scores by class and confusions, ready for JSON."""
  return {
    'most_confused': confused(p, class_names, most=10),
    'reliability': reliability(p),
    'classes': per_class(p, class_names),
    'labels': list(class_names),
    'confusion': confusion(p).tolist(),
  }


def reliability(p: Predictions) -> list[dict[str, int | float]]:
  """Returns accuracy and mean confidence by bins of confidence, without empty ones."""
  bins = np.clip(np.ceil(p.confidence * _BINS).astype(int) - 1, 0, _BINS - 1)
  return [
    {
      'from': i / _BINS,
      'to': (i + 1) / _BINS,
      'examples': int((bins == i).sum()),
      'accuracy': float(p.correct[bins == i].mean()),
      'confidence': float(p.confidence[bins == i].mean()),
    }
    for i in np.unique(bins)
  ]


def per_class(
  p: Predictions, class_names: Sequence[str]
) -> dict[str, dict[str, int | float]]:
  """Returns examples, accuracy (recall) and precision of each class with examples."""
  from sklearn import metrics  # Imported late: it takes a second.

  precision, recall, _, examples = metrics.precision_recall_fscore_support(
    p.labels, p.best[:, 0], labels=range(len(class_names)), zero_division=0
  )
  return {
    name: {
      'examples': int(examples[i]),
      'accuracy': float(recall[i]),
      'precision': float(precision[i]),
    }
    for i, name in enumerate(class_names)
    if examples[i]
  }


def confusion(p: Predictions) -> Int[np.ndarray, 'n 3']:
  """Returns rows of (class, predicted class, images), without empty ones."""
  pairs = np.stack([p.labels, p.best[:, 0]], axis=1)
  found, counts = np.unique(pairs, axis=0, return_counts=True)
  return np.column_stack([found, counts])


def confused(
  p: Predictions, class_names: Sequence[str], most: int
) -> list[dict[str, Any]]:
  """Returns the pairs of classes confused most often, in that order."""
  rows = confusion(p)
  rows = rows[rows[:, 0] != rows[:, 1]]
  rows = rows[np.argsort(-rows[:, 2], kind='stable')][:most].tolist()
  return [
    {'class': class_names[i], 'predicted': class_names[j], 'examples': n}
    for i, j, n in rows
  ]


def real_accuracy(
  p: Predictions, accepted: Sequence[Sequence[int]], numbers: Sequence[int]
) -> dict[str, int | float]:
  """Returns the accuracy by ReaL labels (arXiv:2006.07159).

  Args:
    p: the predictions.
    accepted: ImageNet's numbers of the correct classes of each image; images without
      any do not count.
    numbers: ImageNet's number of each class of the model.
  """
  right = [
    numbers[best] in labels
    for best, labels in zip(p.best[:, 0].tolist(), accepted, strict=True)
    if labels
  ]
  return {
    'examples_real': len(right),
    'accuracy_real': float(np.mean(right)) if right else 0.0,
  }
