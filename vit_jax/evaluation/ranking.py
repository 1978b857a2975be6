"""What is predicted for an image: its most probable classes, or numbers."""

from collections.abc import Callable, Iterator, Sequence
import functools

from jaxtyping import Float32
import numpy as np

from vit_jax.configs import labels as labels_lib
from vit_jax.evaluation import multilabel
from vit_jax.runtime import errors
from vit_jax.weights import record as weights_lib

# (class, probability), the most probable class first; or (name, number).
Prediction = list[tuple[str, float]]
# Index and output of an image.
Row = tuple[int, Float32[np.ndarray, '...']]
Rows = Iterator[Row]


def best(
  row: Float32[np.ndarray, ' K'], labels: Sequence[str], top_k: int
) -> Prediction:
  """Returns the `top_k` most probable classes of an image."""
  order = np.argsort(-row, kind='stable')[:top_k]
  return [(labels[i], float(row[i])) for i in order]


def present(
  row: Float32[np.ndarray, ' K'],
  labels: Sequence[str],
  thresholds: Sequence[float],
) -> Prediction:
  """Returns the classes of an image, those with at least their threshold."""
  return [
    (labels[i], float(row[i]))
    for i in np.argsort(-row, kind='stable')
    if row[i] >= thresholds[i]
  ]


def choose(
  row: Float32[np.ndarray, ' K'], weights: weights_lib.Weights, top_k: int = 5
) -> Prediction:
  """Returns what a model predicts for an image, from its probabilities or numbers.

  That is the `top_k` most probable classes; or, where an image may have several, all
  that reach their threshold; or each number.
  """
  if weights.task == labels_lib.REGRESSION:
    return list(zip(weights.class_names, row.tolist(), strict=True))
  if weights.task == labels_lib.MULTILABEL:
    thresholds = multilabel.thresholds(weights)
    return present(row, weights.class_names, thresholds)
  return best(row, weights.class_names, top_k)


def margin(row: Float32[np.ndarray, ' K']) -> float:
  """Returns the difference between the two largest probabilities."""
  *_, second, first = np.sort(np.append(row, 0.0))
  return float(first - second)


def entropy(row: Float32[np.ndarray, ' K'], *, is_sigmoid: bool) -> float:
  """Returns the entropy of an image's class in nats.

  With `is_sigmoid`, the sum of the entropies of all classes, each present or not.
  """
  p = row.astype(float)
  if is_sigmoid:
    p = np.append(p, 1 - p)
  p = p[p > 0]
  return float(-(p * np.log(p)).sum())


def least_margin(
  row: Float32[np.ndarray, ' K'], thresholds: Sequence[float]
) -> float:
  """Returns the smallest difference between a probability and its threshold."""
  return float(np.abs(row - np.asarray(thresholds)).min())


def unsure_first(rows: Rows, weights: weights_lib.Weights) -> Rows:
  """Returns all rows, those with the smallest margin first.

  Raises:
    errors.UserError: if the model predicts numbers.
  """
  if weights.task == labels_lib.REGRESSION:
    raise errors.UserError(
      'The model predicts numbers, which do not tell how sure it is.'
    )
  margin_of: Callable[[np.ndarray], float] = margin
  if weights.task == labels_lib.MULTILABEL:
    margin_of = functools.partial(
      least_margin, thresholds=multilabel.thresholds(weights)
    )
  return iter(sorted(rows, key=lambda row: margin_of(row[1])))


def at_least_one(rows: Rows, total: int) -> Rows:
  """Yields the rows of the images that were decoded, out of `total`.

  Raises:
    errors.UserError: if there is none.
  """
  count = 0
  for row in rows:
    yield row
    count += 1
  if not count:
    raise errors.UserError(f'None of {total} images can be decoded.')


def with_names(
  rows: Rows, names: Sequence[str], choose: Callable[[np.ndarray], Prediction]
) -> Iterator[tuple[str, Prediction]]:
  """Yields the name of each decoded image, and what `choose` makes of its output."""
  for place, row in rows:
    yield names[place], choose(row)
