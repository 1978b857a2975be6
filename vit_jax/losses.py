"""Losses, one number an example, and the metrics of an evaluation."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
import optax

Logits = Float[Array, 'B K']
Labels = Int[Array, ' B']


def softmax_cross_entropy(
  logits: Logits, labels: Labels, label_smoothing: float = 0.0
) -> Float[Array, ' B']:
  """Cross-entropy of one class an image, in nats."""
  targets = jax.nn.one_hot(labels, logits.shape[-1])
  targets = optax.smooth_labels(targets, label_smoothing)
  return optax.softmax_cross_entropy(logits, targets)


def sigmoid_cross_entropy(
  logits: Logits, labels: Labels, label_smoothing: float = 0.0
) -> Float[Array, ' B']:
  """Sum over the classes of binary cross-entropies (Sec. B.1), in nats."""
  targets = jax.nn.one_hot(labels, logits.shape[-1])
  targets = optax.smooth_labels(targets, label_smoothing)
  return optax.sigmoid_binary_cross_entropy(logits, targets).sum(axis=-1)


LOSSES: dict[str, Callable[..., Float[Array, ' B']]] = {
  'softmax': softmax_cross_entropy,
  'sigmoid': sigmoid_cross_entropy,
}


def is_in_top_k(logits: Logits, labels: Labels, k: int) -> Array:
  """Whether the label is among the k largest logits, bool [B]."""
  _, top = jax.lax.top_k(logits, min(k, logits.shape[-1]))
  return jnp.any(top == labels[:, None], axis=-1)
