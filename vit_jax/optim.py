"""Learning-rate schedules and optimizers, from optax."""

from collections.abc import Sequence
import re
from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import optax

from vit_jax.configs import choices

_LINEAR_END = 1e-5  # Of the official code.

DECAY_TYPES = choices.CHOICES['decay_type']
OPTIMIZERS = choices.CHOICES['optimizer']

_BLOCK = re.compile(r'(encoderblock|MixerBlock)(_(\d+))?/')


def create_learning_rate_schedule(
  total_steps: int,
  base: float,
  decay_type: str,
  warmup_steps: int,
  linear_end: float = _LINEAR_END,
  *,
  timescale: int = 10_000,
  cooldown_steps: int = 0,
) -> optax.Schedule:
  """Returns the schedule of the official code: linear warm-up, then decay.

  Args:
    total_steps: step at which the decay ends.
    base: peak learning rate, reached at `warmup_steps`.
    decay_type: 'cosine' to 0; 'linear' to `linear_end`; 'rsqrt', the reciprocal
      square root of arXiv:2106.04560, Sec. 3.5; or 'constant'.
    warmup_steps: steps of linear growth from 0; 0 for none.
    linear_end: last learning rate of the linear decay.
    timescale: steps after the warm-up until 'rsqrt' is at 0.71 of its peak.
    cooldown_steps: last steps, over which all is scaled linearly down to 0.

  Raises:
    ValueError: if `decay_type` is unknown.
  """
  decay_steps = max(total_steps - warmup_steps, 1)
  if decay_type == 'cosine':
    decay = optax.cosine_decay_schedule(base, decay_steps)
  elif decay_type == 'linear':
    decay = optax.linear_schedule(base, linear_end, decay_steps)
  elif decay_type == 'rsqrt':
    decay = lambda step: base * (1 + jnp.maximum(step, 0) / timescale) ** -0.5
  elif decay_type == 'constant':
    decay = optax.constant_schedule(base)
  else:
    raise ValueError(f'decay_type is {decay_type!r}, not one of {DECAY_TYPES}.')
  schedule = decay
  if warmup_steps:
    warmup = optax.linear_schedule(0.0, base, warmup_steps)
    schedule = optax.join_schedules([warmup, decay], [warmup_steps])
  if not cooldown_steps:
    return schedule
  left = lambda step: (total_steps - step) / cooldown_steps
  return lambda step: schedule(step) * jnp.clip(left(step), 0, 1)


def decay_mask(params: Any) -> Any:
  """Marks the kernels: no bias, norm, class token or position embedding."""
  return flax.traverse_util.path_aware_map(
    lambda path, _: path[-1] == 'kernel', params
  )


def layer_scales(params: Any, decay: float) -> Any:
  """Returns what the learning rate of each parameter is multiplied with.

  Layer-wise decay (arXiv:2106.08254, Sec. 2.4): 1 for what comes after the last
  block, `decay` for that block, and once more for each block before it, the
  embeddings coming before the first.

  Args:
    params: tree of arrays, of a ViT, hybrid or Mixer.
    decay: in (0, 1].

  Returns:
    A tree like it: numbers, or for stacked blocks arrays [depth, 1, ...].
  """
  flat = flax.traverse_util.flatten_dict(params, sep='/')
  depth = 0
  for name, x in flat.items():
    if match := _BLOCK.search(name):
      depth = max(depth, int(match[3]) + 1 if match[3] else len(x))

  def scale(name: str, x: Any) -> Any:
    match = _BLOCK.search(name)
    if not match:
      after = re.search(r'(encoder_norm|pre_head_layer_norm|fc_norm)/', name)
      last = after or re.match(r'(head|pre_logits)/', name)
      return 1.0 if last else decay ** (depth + 1)
    if match[3]:
      return decay ** (depth - int(match[3]))
    scales = decay ** np.arange(depth, 0, -1, dtype=np.float32)
    return scales.reshape(-1, *[1] * (len(x.shape) - 1))

  scales = {name: scale(name, x) for name, x in flat.items()}
  return flax.traverse_util.unflatten_dict(scales, sep='/')


def _scale_by_layer(decay: float) -> optax.GradientTransformation:
  return optax.stateless(
    lambda updates, params: jax.tree.map(
      lambda u, scale: u * scale, updates, layer_scales(updates, decay)
    )
  )


def create_optimizer(
  learning_rate: optax.Schedule,
  *,
  optimizer: str = 'sgd',
  momentum: float = 0.9,
  beta2: float = 0.999,
  optim_dtype: str = 'bfloat16',
  grad_norm_clip: float = 1.0,
  weight_decay: float = 0.0,
  weight_decay_on: str = 'kernels',
  layer_decay: float = 1.0,
  sam_rho: float = 0.0,
) -> optax.GradientTransformation:
  """Returns clipping by global norm, then an optimizer.

  Args:
    learning_rate: step to learning rate.
    optimizer: 'sgd' (decay added to the gradient); 'adamw', 'lamb' and
      'adafactor' (decay decoupled, times the learning rate).
    momentum: of SGD and Adafactor; beta1 of AdamW and LAMB.
    beta2: of AdamW and LAMB.
    optim_dtype: of the momentum, 'bfloat16' or 'float32'.
    grad_norm_clip: largest global norm of the gradient; 0 for no limit.
    weight_decay: 0 for none.
    weight_decay_on: 'kernels' or 'all'.
    layer_decay: of `layer_scales`; 1 for none.
    sam_rho: radius of Sharpness-Aware Minimisation (arXiv:2010.01412), which
      computes a second gradient, there; 0 for none. `update` then needs the
      argument `grad_fn`: parameters to gradient.

  Raises:
    ValueError: if `optimizer` is unknown.
  """
  if optimizer not in OPTIMIZERS:
    raise ValueError(f'optimizer is {optimizer!r}, not one of {OPTIMIZERS}.')
  clip = [optax.clip_by_global_norm(grad_norm_clip)] if grad_norm_clip else []
  mask = decay_mask if weight_decay_on == 'kernels' else None
  decay = [optax.add_decayed_weights(weight_decay, mask)]
  if not weight_decay:
    decay = []
  by_layer = [_scale_by_layer(layer_decay)] if layer_decay != 1 else []
  tx = optax.chain(
    *clip,
    *_directions(optimizer, momentum, beta2, optim_dtype, decay),
    *by_layer,
    optax.scale_by_learning_rate(learning_rate),
  )
  if not sam_rho:
    return tx
  ascent = optax.chain(optax.contrib.normalize(), optax.sgd(sam_rho))
  return optax.contrib.sam(tx, ascent, opaque_mode=True)


def _directions(
  optimizer: str,
  momentum: float,
  beta2: float,
  dtype: str,
  decay: Sequence[optax.GradientTransformation],
) -> list[optax.GradientTransformation]:
  """Returns what makes steps of gradients, but for the learning rate."""
  if optimizer == 'sgd':
    return [*decay, optax.trace(momentum, accumulator_dtype=dtype)]
  if optimizer == 'adafactor':
    # Without scaling by the size of the parameter (arXiv:2106.04560, App. B).
    return [
      optax.scale_by_factored_rms(min_dim_size_to_factor=32),
      optax.clip_by_block_rms(1.0),
      optax.ema(momentum, debias=False, accumulator_dtype=dtype),
      *decay,
    ]
  adam = optax.scale_by_adam(momentum, beta2, mu_dtype=jnp.dtype(dtype))
  if optimizer == 'lamb':
    return [adam, *decay, optax.scale_by_trust_ratio()]
  return [adam, *decay]
