"""Losses, one number an example."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
import numpy as np
import optax

Logits = Float[Array, 'B K']
Labels = Int[Array, ' B']
Targets = Labels | Float[Array, 'B K']
Weights = Float[Array | np.ndarray, ' K']


def _shares(
  logits: Logits, labels: Targets, label_smoothing: float
) -> Float[Array, 'B K']:
  """Returns the share of each class in the target of each image."""
  if labels.ndim == 1:
    labels = jax.nn.one_hot(labels, logits.shape[-1])
  return optax.smooth_labels(labels, label_smoothing)


def softmax_cross_entropy(
  logits: Logits,
  labels: Targets,
  label_smoothing: float = 0.0,
  class_weights: Weights | None = None,
  focal_gamma: float = 0.0,
) -> Float[Array, ' B']:
  """Cross-entropy in nats; `labels` are classes or shares of classes.

  Args:
    logits: outputs of the head.
    labels: classes, or the share of each class.
    label_smoothing: share of the target that is spread over all classes.
    class_weights: factor of the terms of each class.
    focal_gamma: power of 1 - p that multiplies the term of a class of probability
      p (arXiv:1708.02002, Eq. 4).
  """
  targets = _shares(logits, labels, label_smoothing)
  if class_weights is None and not focal_gamma:
    return optax.softmax_cross_entropy(logits, targets)
  log_p = jax.nn.log_softmax(logits)
  terms = _focal(-jnp.expm1(log_p), focal_gamma) * targets * log_p
  return -_weighted_sum(terms, class_weights)


def sigmoid_cross_entropy(
  logits: Logits,
  labels: Targets,
  label_smoothing: float = 0.0,
  class_weights: Weights | None = None,
  focal_gamma: float = 0.0,
) -> Float[Array, ' B']:
  """Sum of the binary cross-entropies of all classes (Sec. B.1), in nats.

  Arguments are those of `softmax_cross_entropy`.
  """
  targets = _shares(logits, labels, label_smoothing)
  if class_weights is None and not focal_gamma:
    return optax.sigmoid_binary_cross_entropy(logits, targets).sum(axis=-1)
  present, absent = _binary_terms(logits, targets, focal_gamma)
  return -_weighted_sum(present + absent, class_weights)


def multilabel_cross_entropy(
  logits: Logits,
  labels: Float[Array, 'B K'],
  class_weights: Weights | None = None,
  focal_gamma: float = 0.0,
) -> Float[Array, ' B']:
  """Sum of the binary cross-entropies of all classes, in nats.

  Args:
    logits: outputs of the head.
    labels: 1 for each class that an image has, 0 for the others.
    class_weights: factor of the terms of classes that an image has.
    focal_gamma: see `softmax_cross_entropy`.
  """
  present, absent = _binary_terms(logits, labels, focal_gamma)
  return -_weighted_sum(present, class_weights) - _weighted_sum(absent, None)


def _binary_terms(
  logits: Logits, targets: Float[Array, 'B K'], focal_gamma: float
) -> tuple[Float[Array, 'B K'], Float[Array, 'B K']]:
  """Returns the terms of classes that are present, and of those that are not."""
  p, log_p = jax.nn.sigmoid(logits), jax.nn.log_sigmoid(logits)
  wrong, log_wrong = jax.nn.sigmoid(-logits), jax.nn.log_sigmoid(-logits)
  present = _focal(wrong, focal_gamma) * targets * log_p
  return present, _focal(p, focal_gamma) * (1 - targets) * log_wrong


def _focal(wrong: Float[Array, 'B K'], gamma: float) -> Float[Array, 'B K']:
  """Returns powers of 1 - p, whose derivatives are finite at 0 too."""
  return jnp.maximum(wrong, 1e-7) ** gamma if gamma else jnp.ones_like(wrong)


def _weighted_sum(
  terms: Float[Array, 'B K'], weights: Weights | None
) -> Float[Array, ' B']:
  return (terms if weights is None else terms * weights).sum(axis=-1)


Loss = Callable[[Logits, Array], Float[Array, ' B']]

LOSSES: dict[str, Callable[..., Float[Array, ' B']]] = {
  'softmax': softmax_cross_entropy,
  'sigmoid': sigmoid_cross_entropy,
}

# Losses by name; each takes the prediction minus the number.
_OF_DIFFERENCE: dict[str, Callable[[Array], Array]] = {
  'l2': optax.l2_loss,  # Half the square.
  'l1': jnp.abs,
  'huber': optax.huber_loss,  # Half the square up to 1, linear from there on.
}


def of_numbers(loss: str, mean: Weights, std: Weights) -> Loss:
  """Returns the loss of numbers: the mean over those of an image.

  Args:
    loss: 'l2', 'l1' or 'huber'.
    mean: mean of each number.
    std: its standard deviation. Logits predict (number - mean) / std.
  """

  def loss_fn(logits: Logits, numbers: Array) -> Float[Array, ' B']:
    difference = logits - (numbers - mean) / std
    return _OF_DIFFERENCE[loss](difference).mean(axis=-1)

  return loss_fn


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
