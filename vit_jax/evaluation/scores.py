"""What a classifier is worth, from what it said of labelled images."""

from collections.abc import Sequence
import dataclasses
from typing import Any

from jaxtyping import Float, Int
import numpy as np

_BINS = 15


@dataclasses.dataclass(frozen=True)
class Predictions:
  """What a model said of N images.

  Attributes:
    places: of the images in their source.
    labels: classes they are of.
    best: the k most probable classes, the best first; k is 5, or the number of
      classes if that is less.
    confidence: probability of the best.
    probability: of the label.
  """

  places: Int[np.ndarray, ' N']
  labels: Int[np.ndarray, ' N']
  best: Int[np.ndarray, 'N k']
  confidence: Float[np.ndarray, ' N']
  probability: Float[np.ndarray, ' N']

  @property
  def correct(self) -> np.ndarray:
    """Whether the best class is the label, bool [N]."""
    return self.best[:, 0] == self.labels


def summary(p: Predictions) -> dict[str, int | float]:
  """Returns the numbers that are of all images together.

  `nll` is the mean of -log(probability of the label), `ece` the expected
  calibration error (arXiv:1706.04599, Sec. 2) in 15 bins.
  """
  return {
    'examples': len(p.labels),
    'top1': float(p.correct.mean()),
    'top5': float((p.best == p.labels[:, None]).any(axis=1).mean()),
    'nll': float(-np.log(np.maximum(p.probability, 1e-12)).mean()),
    'ece': expected_calibration_error(p),
    'confidence': float(p.confidence.mean()),
  }


def expected_calibration_error(p: Predictions) -> float:
  """Returns how far, on average, confidence is from accuracy."""
  return float(
    sum(
      row['examples'] * abs(row['accuracy'] - row['confidence'])
      for row in reliability(p)
    )
    / len(p.labels)
  )


def reliability(p: Predictions) -> list[dict[str, int | float]]:
  """Returns accuracy and mean confidence, by bins of confidence that have any."""
  bins = np.clip(np.ceil(p.confidence * _BINS).astype(int) - 1, 0, _BINS - 1)
  rows = []
  for i in np.unique(bins):
    inside = bins == i
    rows.append(
      {
        'from': i / _BINS,
        'to': (i + 1) / _BINS,
        'examples': int(inside.sum()),
        'accuracy': float(p.correct[inside].mean()),
        'confidence': float(p.confidence[inside].mean()),
      }
    )
  return rows


def per_class(
  p: Predictions, class_names: Sequence[str]
) -> dict[str, dict[str, int | float]]:
  """Returns examples, recall and precision of each class that has examples.

  Recall is what is called the accuracy of a class: the share of its images that
  are found. Precision, the share that is right of what is taken for it, is 0
  where nothing is.
  """
  size = len(class_names)
  examples, taken, hits = (
    np.bincount(x, minlength=size).tolist()
    for x in (p.labels, p.best[:, 0], p.labels[p.correct])
  )
  return {
    name: {
      'examples': examples[i],
      'accuracy': hits[i] / examples[i],
      'precision': hits[i] / taken[i] if taken[i] else 0.0,
    }
    for i, name in enumerate(class_names)
    if examples[i]
  }


def confusion(p: Predictions) -> Int[np.ndarray, 'n 3']:
  """Returns rows of a class, what it was taken for and how often, if ever."""
  pairs = np.stack([p.labels, p.best[:, 0]], axis=1)
  found, counts = np.unique(pairs, axis=0, return_counts=True)
  return np.column_stack([found, counts])


def confused(
  p: Predictions, class_names: Sequence[str], most: int
) -> list[dict[str, Any]]:
  """Returns the pairs of classes most often confused, the most first."""
  rows = confusion(p)
  rows = rows[rows[:, 0] != rows[:, 1]]
  rows = rows[np.argsort(-rows[:, 2], kind='stable')][:most].tolist()
  return [
    {
      'class': class_names[label],
      'taken_for': class_names[other],
      'examples': count,
    }
    for label, other, count in rows
  ]


def any_of(
  p: Predictions, accepted: Sequence[Sequence[int]]
) -> dict[str, int | float]:
  """Returns the accuracy where several labels may be right, as in ReaL.

  Args:
    p: predictions.
    accepted: classes of each of them; images with none are left out.
  """
  hits = [
    best in labels
    for best, labels in zip(p.best[:, 0].tolist(), accepted, strict=True)
    if labels
  ]
  return {
    'examples_real': len(hits),
    'top1_real': float(np.mean(hits)) if hits else 0.0,
  }
