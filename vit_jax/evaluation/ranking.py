"""The most probable classes of images."""

from collections.abc import Iterator, Sequence

from jaxtyping import Float32
import numpy as np

from vit_jax.runtime import errors

# (class, probability), the most probable class first.
Prediction = list[tuple[str, float]]
# Index and output of each image.
Rows = Iterator[tuple[int, Float32[np.ndarray, '...']]]


def best(
  row: Float32[np.ndarray, ' K'], labels: Sequence[str], top_k: int
) -> Prediction:
  """Returns the `top_k` most probable classes of an image."""
  order = np.argsort(-row, kind='stable')[:top_k]
  return [(labels[i], float(row[i])) for i in order]


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


def unsure_first(rows: Rows) -> Rows:
  """Yields all rows, those with the smallest margin first."""
  yield from sorted(rows, key=lambda row: margin(row[1]))


def with_names(
  rows: Rows, names: Sequence[str], labels: Sequence[str], top_k: int
) -> Iterator[tuple[str, Prediction]]:
  """Yields the name and the most probable classes of each decoded image.

  Raises:
    errors.UserError: if there is none.
  """
  count = 0
  for place, row in rows:
    yield names[place], best(row, labels, top_k)
    count += 1
  if not count:
    raise errors.UserError(f'None of {len(names)} images can be decoded.')
