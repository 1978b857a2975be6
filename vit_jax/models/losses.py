"""Losses, one number an example."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
import optax

Logits = Float[Array, 'B K']
Labels = Int[Array, ' B']
Targets = Labels | Float[Array, 'B K']


def _shares(
  logits: Logits, labels: Targets, label_smoothing: float
) -> Float[Array, 'B K']:
  """Returns the share of each class in the target of each image."""
  if labels.ndim == 1:
    labels = jax.nn.one_hot(labels, logits.shape[-1])
  return optax.smooth_labels(labels, label_smoothing)


def softmax_cross_entropy(
  logits: Logits, labels: Targets, label_smoothing: float = 0.0
) -> Float[Array, ' B']:
  """Cross-entropy in nats; `labels` are classes or shares of classes."""
  targets = _shares(logits, labels, label_smoothing)
  return optax.softmax_cross_entropy(logits, targets)


def sigmoid_cross_entropy(
  logits: Logits, labels: Targets, label_smoothing: float = 0.0
) -> Float[Array, ' B']:
  """Sum of the binary cross-entropies of all classes (Sec. B.1), in nats."""
  targets = _shares(logits, labels, label_smoothing)
  return optax.sigmoid_binary_cross_entropy(logits, targets).sum(axis=-1)


LOSSES: dict[str, Callable[..., Float[Array, ' B']]] = {
  'softmax': softmax_cross_entropy,
  'sigmoid': sigmoid_cross_entropy,
}


def contrastive(
  logits: Float[Array, 'B B'],
  loss: str = 'softmax',
  label_smoothing: float = 0.0,
) -> Float[Array, ' B']:
  """Loss of each image i (row) and text j (column), which match if i = j.

  Args:
    logits: similarities.
    loss: 'softmax' is the mean of the cross-entropies over all texts and over all
      images (InfoNCE, arXiv:2111.07991, Sec. 3), 'sigmoid' the sum of the binary
      cross-entropies of all pairs (arXiv:2303.15343, Eq. 1).
    label_smoothing: share of the target that is spread over all pairs.
  """
  labels = jnp.arange(len(logits))
  to_text = LOSSES[loss](logits, labels, label_smoothing)
  to_image = LOSSES[loss](logits.T, labels, label_smoothing)
  return (to_text + to_image) / 2
