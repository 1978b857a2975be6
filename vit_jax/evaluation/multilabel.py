"""Scores of models whose images have any number of classes.

Definitions are scikit-learn's. A class counts only if images have it, or, for F1, if
images are predicted to have it.
"""

from collections.abc import Sequence
from typing import Any

from jaxtyping import Float
import numpy as np

from vit_jax.evaluation import scores
from vit_jax.weights import record as weights_lib

# Mean over classes of the average precision.
MAP = 'map_test'

DEFAULT_THRESHOLD = 0.5

Probabilities = Float[np.ndarray, 'N K']
Marks = Float[np.ndarray, 'N K']
Thresholds = Sequence[float] | Float[np.ndarray, ' K']


def thresholds(weights: weights_lib.Weights) -> Sequence[float]:
  """Returns the threshold of each class of a model."""
  return weights.thresholds or [DEFAULT_THRESHOLD] * len(weights.class_names)


def summary(
  p: Probabilities, labels: Marks, limits: Thresholds
) -> dict[str, float]:
  """Returns the scores of all images together.

  Args:
    p: probability of each class.
    labels: 1 for each class that an image has.
    limits: probability from which on each class is predicted.
  """
  from sklearn import metrics  # Imported late: it takes a second.

  if not np.isfinite(p).all():  # scikit-learn would refuse them.
    return {MAP: np.nan, scores.F1: np.nan}
  seen = labels.any(axis=0)
  precision = [
    metrics.average_precision_score(labels[:, k], p[:, k])
    for k in np.flatnonzero(seen)
  ]
  # Class by class: scikit-learn takes a single column for two classes.
  f1 = [
    metrics.f1_score(*column, zero_division=np.nan)
    for column in zip(labels.T, (p >= limits).T, strict=True)
  ]
  counted = [value for value in f1 if not np.isnan(value)]
  return {
    MAP: float(np.mean(precision)) if precision else 0.0,
    scores.F1: float(np.mean(counted)) if counted else 0.0,
  }


def per_class(
  p: Probabilities, labels: Marks, limits: Thresholds, names: Sequence[str]
) -> dict[str, dict[str, Any]]:
  """Returns the scores of each class that images have."""
  from sklearn import metrics

  rows = {}
  for k, name in enumerate(names):
    marks = labels[:, k]
    if not marks.any():
      continue
    precision, recall, f1, _ = metrics.precision_recall_fscore_support(
      marks, p[:, k] >= limits[k], average='binary', zero_division=0
    )
    rows[name] = {
      'examples': int(marks.sum()),
      'average_precision': float(
        metrics.average_precision_score(marks, p[:, k])
      ),
      'threshold': float(limits[k]),
      'f1': float(f1),
      'precision': float(precision),
      'recall': float(recall),
    }
  return rows


def best_thresholds(p: Probabilities, labels: Marks) -> list[float]:
  """Returns the threshold of each class that gives its best F1.

  It is half-way between two probabilities, so that rounding changes nothing; of a
  class that no image has it is 0.5.
  """
  return [
    _best_threshold(*column) for column in zip(p.T, labels.T, strict=True)
  ]


def _best_threshold(
  p: Float[np.ndarray, ' N'], labels: Float[np.ndarray, ' N']
) -> float:
  if not labels.any():
    return DEFAULT_THRESHOLD
  order = np.argsort(-p, kind='stable')
  values, right = p[order].astype(float), np.cumsum(labels[order])
  f1 = 2 * right / (np.arange(1, len(p) + 1) + labels.sum())
  below = np.append(values[1:], 0.0)
  f1[:-1][values[:-1] == values[1:]] = 0  # Equal ones cannot be parted.
  last = int(f1.argmax())
  return float((values[last] + below[last]) / 2)
