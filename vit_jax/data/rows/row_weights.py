"""Weights of images: how much each of them counts in the training loss.

They are divided by their mean over the training images, so that a learning rate means
the same with and without them. Evaluation counts each image once.
"""

from typing import Any

from jaxtyping import Float
import numpy as np

from vit_jax.runtime import errors


def of_source(source: Any) -> Float[np.ndarray, ' N'] | None:
  """Returns the weights of the images of a source; None if it has none."""
  return getattr(source, 'weights', None)


def scaled(source: Any) -> Float[np.ndarray, ' N'] | None:
  """Returns weights whose mean is 1; None if the source has none.

  Raises:
    errors.UserError: if all of them are 0.
  """
  weights = of_source(source)
  if weights is None:
    return None
  if not weights.any():
    raise errors.UserError(
      f'All {len(weights)} training images have the weight 0: there is nothing to'
      f' learn. To train without weights, set config.columns.weight= (empty).'
    )
  return (weights / weights.mean(dtype=np.float64)).astype(np.float32)


def facts(source: Any) -> dict[str, float] | None:
  """Returns lowest, mean and highest weight, and how many are 0."""
  weights = of_source(source)
  if weights is None:
    return None
  return {
    'lowest': float(weights.min()),
    'mean': float(weights.mean(dtype=np.float64)),
    'highest': float(weights.max()),
    'zero': int((weights == 0).sum()),
  }


def text(facts: dict[str, float]) -> str:
  """Returns '0.5 to 4, mean 1.25, 3 images 0'."""
  zero = f', {facts["zero"]:,} images 0' if facts['zero'] else ''
  return (
    f'{facts["lowest"]:.4g} to {facts["highest"]:.4g}, mean'
    f' {facts["mean"]:.4g}{zero}'
  )
