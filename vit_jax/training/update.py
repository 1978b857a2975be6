"""One update of the parameters: a pure function, the same for every model."""

from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key
import optax

from vit_jax.models import losses
from vit_jax.training import freeze as freeze_lib
from vit_jax.training import state as state_lib

Batch = dict[str, Array]
Metrics = dict[str, Array]
LossFn = Callable[[Any, Batch, Key[Array, '']], Float[Array, '']]
Preprocess = Callable[[Array, Array], Array]
Mix = Callable[[Array, Array, Array], tuple[Array, Array]]


def make_loss_fn(
  model: nn.Module,
  preprocess: Preprocess,
  loss: losses.Loss = losses.softmax_cross_entropy,
  mix: Mix | None = None,
  merge: Callable[[Any], Any] = lambda params: params,
) -> LossFn:
  """Returns `loss_fn(params, batch, key)`, the mean loss of a batch.

  Args:
    model: the module.
    preprocess: maps `(key, images)` to float32 images in [-1, 1].
    loss: maps logits and labels to the loss of each image.
    merge: maps parameters of a state to those of the model.
    mix: maps `(key, images, labels)` to mixed images and shares of classes.

  A batch may have the weight of each image, which multiplies its loss; those of mixed
  images are mixed as their labels.
  """

  def loss_fn(params, batch, key):
    images, labels, weights, dropout_key = augmented(
      preprocess, mix, batch, key
    )
    logits = model.apply(
      {'params': merge(params)},
      images,
      train=True,
      rngs={'dropout': dropout_key},
    )
    each = loss(logits, labels)
    return jnp.mean(each if weights is None else each * weights)

  return loss_fn


def augmented(
  preprocess: Preprocess, mix: Mix | None, batch: Batch, key: Array
) -> tuple[Array, Array, Array | None, Array]:
  """Returns images, labels and weights of the loss, and the key of dropout."""
  augment_key, dropout_key = jax.random.split(key)
  images, labels = preprocess(augment_key, batch['image']), batch['label']
  weights = batch.get('weight')
  if mix:  # A third key leaves the other two as they are without mixing.
    mix_key = jax.random.fold_in(key, 2)
    if weights is not None:
      _, weights = mix(mix_key, images, weights[:, None])
      weights = weights[:, 0]
    images, labels = mix(mix_key, images, labels)
  return images, labels, weights, dropout_key


def accumulate_gradient(
  loss_fn: Callable[..., tuple[Array, Metrics]],
  params: Any,
  batch: Batch,
  key: Array,
  accum_steps: int,
) -> tuple[tuple[Array, Metrics], Any]:
  """Returns the mean of loss and metrics, and the gradient, from `accum_steps` parts."""
  grad_fn = jax.value_and_grad(loss_fn, has_aux=True)
  if accum_steps == 1:
    return grad_fn(params, batch, key)

  def split(x: Array) -> Array:
    # Strided parts have rows of every device, so no row moves.
    return x.reshape(-1, accum_steps, *x.shape[1:]).swapaxes(0, 1)

  def body(total, part):
    index, micro_batch = part
    part_key = jax.random.fold_in(key, index)
    (loss, metrics), grads = grad_fn(params, micro_batch, part_key)
    return jax.tree.map(jnp.add, total, (loss, grads)), metrics

  zeros = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, params))
  parts = (jnp.arange(accum_steps), jax.tree.map(split, batch))
  total, metrics = jax.lax.scan(body, zeros, parts)
  loss, grads = jax.tree.map(lambda x: x / accum_steps, total)
  return (loss, jax.tree.map(jnp.mean, metrics)), grads


def train_step(
  state: state_lib.TrainState,
  batch: Batch,
  key: Array,
  *,
  loss_fn: Callable[..., Any],
  tx: optax.GradientTransformation,
  accum_steps: int = 1,
  freeze: Sequence[str] = (),
  ema_decay: float = 0.0,
  limit: Callable[[Any], Any] = lambda params: params,
  has_metrics: bool = False,
) -> tuple[state_lib.TrainState, Metrics]:
  """One update; returns the new state and metrics of this step.

  `loss_fn` is a `LossFn`; with `has_metrics` it returns the loss and metrics. `key`
  is that of the run, `tx` the result of `optimizers.create_optimizer`, and `freeze`
  has patterns of `freeze.split`; the optimizer state has no frozen parameters. The
  gradient is computed in `accum_steps` parts. `limit` maps the parameters that were
  trained to allowed ones.
  """
  # The key depends on the step alone, so a resumed run repeats exactly.
  step_key = jax.random.fold_in(key, state.step)
  params, frozen = freeze_lib.split(state.params, freeze)

  def with_metrics(params: Any, *args: Any) -> tuple[Array, Metrics]:
    result = loss_fn(freeze_lib.join(params, frozen), *args)
    return result if has_metrics else (result, {})

  def loss_and_grads(params: Any) -> tuple[tuple[Array, Metrics], Any]:
    return accumulate_gradient(
      with_metrics, params, batch, step_key, accum_steps
    )

  (loss, more), grads = loss_and_grads(params)
  updates, opt_state = optax.with_extra_args_support(tx).update(
    grads,
    state.opt_state,
    params,
    grad_fn=lambda params, _: loss_and_grads(params)[1],  # For SAM.
  )
  params = limit(optax.apply_updates(params, updates))
  params = freeze_lib.join(params, frozen)
  metrics = {'train_loss': loss, 'grad_norm': optax.tree.norm(grads), **more}
  ema = _moving_average(state.ema, params, ema_decay, state.step)
  return state_lib.TrainState(state.step + 1, params, opt_state, ema), metrics


def _moving_average(ema: Any, params: Any, decay: float, step: Array) -> Any:
  if not ema:
    return ema
  # Forgets the first steps sooner, like TensorFlow and timm.
  kept = jnp.minimum(decay, (1.0 + step) / (10.0 + step))
  return jax.tree.map(lambda e, p: e + (1 - kept) * (p - e), ema, params)
