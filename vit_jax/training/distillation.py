"""Steps of a student, whose loss also needs the logits of a teacher."""

from collections.abc import Callable
import functools
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from vit_jax.models import distillation
from vit_jax.training import state as state_lib
from vit_jax.training import update

# Metrics of a step: both parts of the loss, and how often the teacher's best class is
# that of the label, where an image has one class.
LABEL_LOSS, TEACHER_LOSS = 'label_loss_train', 'teacher_loss_train'
TEACHER_ACCURACY = 'teacher_accuracy_train'


def make_loss_fn(
  model: nn.Module,
  preprocess: update.Preprocess,
  loss: distillation.Distillation,
  mix: update.Mix | None,
  merge: Callable[[Any], Any],
  teach: Callable[[Any, Array], Float[Array, 'B K']],
) -> Callable[..., tuple[Array, dict[str, Array]]]:
  """Returns `loss_fn(params, batch, key, teacher)`: the mean loss, and metrics.

  Other arguments are those of `update.make_loss_fn`.

  Args:
    model: the student.
    preprocess: maps a key and images of a batch to the input of the student.
    loss: the losses of labels and teacher.
    mix: mixes images and labels; None for no mixing.
    merge: maps the parameters that are trained to those of the student.
    teach: maps the teacher's parameters and the student's images to logits.
  """

  def loss_fn(params, batch, key, teacher):
    images, labels, weights, dropout_key = update.augmented(
      preprocess, mix, batch, key
    )
    logits, heads = model.apply(
      {'params': merge(params)},
      images,
      train=True,
      rngs={'dropout': dropout_key},
      mutable=['heads'],
    )
    [(own, taught)] = heads.get('heads', {}).get('outputs', [(logits, logits)])
    answers = teach(teacher, images)
    total, label_loss, teacher_loss = loss(
      own, taught, labels, answers, weights
    )
    metrics = {LABEL_LOSS: label_loss, TEACHER_LOSS: teacher_loss}
    if batch['label'].ndim == 1:
      best = labels if labels.ndim == 1 else jnp.argmax(labels, axis=-1)
      metrics[TEACHER_ACCURACY] = jnp.mean(jnp.argmax(answers, axis=-1) == best)
    return total, metrics

  return loss_fn


def train_step(
  state: state_lib.TrainState,
  batch: update.Batch,
  key: Array,
  teacher: Any,
  *,
  loss_fn: Callable[..., Any],
  **how: Any,
) -> tuple[state_lib.TrainState, dict[str, Array]]:
  """`update.train_step` with the parameters of a teacher.

  They are an argument, because a compiled program would contain constants.
  """
  return update.train_step(
    state,
    batch,
    key,
    loss_fn=functools.partial(loss_fn, teacher=teacher),
    has_metrics=True,
    **how,
  )
