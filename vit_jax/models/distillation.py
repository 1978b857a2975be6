"""The loss of a student, which learns from labels and from a teacher's logits."""

from collections.abc import Callable
import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vit_jax.models import losses

Logits = losses.Logits

# Probabilities of a loss by its name.
_PROBABILITIES: dict[str, Callable[[Array], Array]] = {
  'softmax': jax.nn.softmax,
  'sigmoid': jax.nn.sigmoid,
}


@dataclasses.dataclass(frozen=True)
class Distillation:
  """Both losses of a student, and their weighted mean.

  Attributes:
    of_labels: maps logits and labels to the loss of each image.
    of_teacher: maps logits and the teacher's logits to the loss of each image.
    weight: weight of the teacher.
  """

  of_labels: losses.Loss
  of_teacher: losses.Loss
  weight: float

  def __call__(
    self,
    logits: Logits,
    taught: Logits,
    labels: Array,
    teacher: Logits,
    weights: Array | None = None,
  ) -> tuple[Float[Array, ''], Float[Array, ''], Float[Array, '']]:
    """Returns the loss of a batch, then those of its labels and of the teacher.

    Args:
      logits: what learns from labels.
      taught: what learns from the teacher; a distillation token may have its own.
      labels: see `losses`.
      teacher: logits of the teacher.
      weights: weight of each image in both losses; None for 1.
    """
    factor = 1.0 if weights is None else weights
    label_loss = jnp.mean(self.of_labels(logits, labels) * factor)
    teacher_loss = jnp.mean(self.of_teacher(taught, teacher) * factor)
    total = (1 - self.weight) * label_loss + self.weight * teacher_loss
    return total, label_loss, teacher_loss


def as_logits_of(loss: str, logits: Logits, given: str) -> Logits:
  """Returns logits that mean for one loss what `logits` mean for another.

  A softmax keeps the ratios of the probabilities of a sigmoid, which need not sum
  to 1; a sigmoid keeps the probabilities of a softmax.

  Args:
    loss: 'softmax' or 'sigmoid', what the result is made for.
    logits: logits of all classes.
    given: 'softmax' or 'sigmoid', what they were trained with.
  """
  if loss == given:
    return logits
  if loss == 'softmax':
    return jax.nn.log_sigmoid(logits)
  # A probability of 1 would have an infinite logit.
  log_p = jnp.minimum(jax.nn.log_softmax(logits), -1e-6)
  return log_p - jnp.log(-jnp.expm1(log_p))


def soft(loss: str, plain: losses.Loss, temperature: float) -> losses.Loss:
  """Returns the divergence from the teacher's probabilities, times temperature².

  The square keeps the size of gradients (arXiv:1503.02531, Sec. 2). Binary
  cross-entropies give the sum of the divergences of all classes.

  Args:
    loss: 'softmax' or 'sigmoid'.
    plain: the loss function, which takes logits and probabilities.
    temperature: divides both logits.
  """

  def of_teacher(logits: Logits, teacher: Logits) -> Float[Array, ' B']:
    p = _PROBABILITIES[loss](teacher / temperature)
    divergence = plain(logits / temperature, p) - plain(
      teacher / temperature, p
    )
    return temperature**2 * divergence

  return of_teacher


def hard(plain: losses.Loss, decide: Callable[[Logits], Array]) -> losses.Loss:
  """Returns the loss of the teacher's decisions, as labels (arXiv:2012.12877, Eq. 3).

  `decide` maps its logits to labels.
  """
  return lambda logits, teacher: plain(logits, decide(teacher))
