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
  """Returns targets [B, K] of classes, or of the shares of classes."""
  if labels.ndim == 1:
    labels = jax.nn.one_hot(labels, logits.shape[-1])
  return optax.smooth_labels(labels, label_smoothing)


def softmax_cross_entropy(
  logits: Logits, labels: Targets, label_smoothing: float = 0.0
) -> Float[Array, ' B']:
  """Cross-entropy of one class an image, or of shares of classes, in nats."""
  targets = _shares(logits, labels, label_smoothing)
  return optax.softmax_cross_entropy(logits, targets)


def sigmoid_cross_entropy(
  logits: Logits, labels: Targets, label_smoothing: float = 0.0
) -> Float[Array, ' B']:
  """Sum over the classes of binary cross-entropies (Sec. B.1), in nats."""
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
  """How far each image is from finding its own text, and the other way round.

  Args:
    logits: of image i (row) with text j (column); they belong together if i = j.
    loss: 'softmax': cross-entropy over all texts and over all images, their
      mean (InfoNCE, arXiv:2111.07991, Sec. 3); 'sigmoid': binary
      cross-entropies of all pairs, summed (arXiv:2303.15343, Eq. 1).
    label_smoothing: part of the target that all pairs share.
  """
  labels = jnp.arange(len(logits))
  to_text = LOSSES[loss](logits, labels, label_smoothing)
  to_image = LOSSES[loss](logits.T, labels, label_smoothing)
  return (to_text + to_image) / 2
