"""Learning-rate schedules and optimizers, from optax."""

from collections.abc import Sequence
import functools
import re
from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import optax

from vit_jax.configs import common
from vit_jax.configs import spec
from vit_jax.models import blocks
from vit_jax.models import lora
from vit_jax.runtime import errors
from vit_jax.training import per_block

# Blocks of ViTs, hybrids and Mixers, which have one sequence of blocks.
_BLOCK = re.compile(rf'(?:Transformer/)?(?:{"|".join(spec.BLOCKS)})_(\d+)/')
_AFTER = re.compile(
  r'(Transformer/encoder_norm|fc_norm|pre_head_layer_norm|pre_logits|MAPHead_0|'
  rf'projection|{"|".join(spec.HEADS)})/'
)
_IN_BLOCK = re.compile(rf'(?:{"|".join(spec.BLOCKS)})(?:_\d+)?')
# Parameters that multiply inputs; others are added, or scale one channel.
_MATRICES = ('kernel', lora.A, lora.B)
# Root mean square of AdamW's steps, which Muon's are scaled to (arXiv:2502.16982).
_RMS_OF_ADAM = 0.2


def create_learning_rate_schedule(
  total_steps: int,
  base: float,
  decay_type: str,
  warmup_steps: int,
  linear_end: float = 1e-5,
  *,
  timescale: int = 10_000,
  cooldown_steps: int = 0,
) -> optax.Schedule:
  """Returns the schedule of the official code: linear warm-up, then decay.

  Args:
    total_steps: step at which the decay ends.
    base: peak learning rate, reached at `warmup_steps`.
    decay_type: 'cosine' to 0; 'linear' to `linear_end`, or to `base` if that is
      lower; 'rsqrt', the reciprocal square root of arXiv:2106.04560, Sec. 3.5; or
      'constant'.
    warmup_steps: steps of linear growth from 0.
    linear_end: last learning rate of the linear decay; official default.
    timescale: steps from the warm-up until 'rsqrt' falls to 0.71 of its peak.
    cooldown_steps: last steps; they also scale the rate linearly to 0.
  """
  common.RULES['decay_type'].check(decay_type, 'decay_type')
  decay_steps = max(total_steps - warmup_steps, 1)
  if decay_type == 'cosine':
    decay = optax.cosine_decay_schedule(base, decay_steps)
  elif decay_type == 'linear':
    decay = optax.linear_schedule(base, min(linear_end, base), decay_steps)
  elif decay_type == 'rsqrt':
    decay = lambda step: base * (1 + jnp.maximum(step, 0) / timescale) ** -0.5
  else:
    decay = optax.constant_schedule(base)
  schedule = decay
  if warmup_steps:
    warmup = optax.linear_schedule(0.0, base, warmup_steps)
    schedule = optax.join_schedules([warmup, decay], [warmup_steps])
  if not cooldown_steps:
    return schedule
  left = lambda step: (total_steps - step) / cooldown_steps
  return lambda step: schedule(step) * jnp.clip(left(step), 0, 1)


def decay_mask(params: Any) -> Any:
  """Selects matrices; not biases, norms, scales, tokens or position embeddings."""
  return flax.traverse_util.path_aware_map(
    lambda path, _: path[-1] in _MATRICES, params
  )


def layer_scales(params: Any, decay: float) -> Any:
  """Returns factors of the learning rate, decayed layer by layer.

  arXiv:2106.08254, Sec. 2.4: 1 after the last block, `decay` for that block, and
  once more for each block before it; the embeddings come before the first.

  Args:
    params: all arrays of a ViT, hybrid or Mixer, including frozen ones.
    decay: in (0, 1].

  Returns:
    A tree like `params`: numbers, or arrays [depth, 1, ...] for stacked blocks.
  """
  flat = flax.traverse_util.flatten_dict(params, sep='/')
  names = {name: blocks.official_names(name, x) for name, x in flat.items()}
  matches = [_BLOCK.match(n) for group in names.values() for n in group]
  indices = [int(match[1]) for match in matches if match]
  if not indices:
    raise errors.UserError(
      f'config.layer_decay is {decay}, must be 1 here: only ViTs, hybrids and'
      f' Mixers have a single sequence of blocks, along which the rate decays.'
    )
  depth = max(indices) + 1

  def scale(name: str) -> float:
    if match := _BLOCK.match(name):
      return decay ** (depth - int(match[1]))
    return 1.0 if _AFTER.match(name) else decay ** (depth + 1)

  def scales(name: str, x: Any) -> Any:
    if names[name] == [name]:
      return scale(name)
    of_blocks = np.array([scale(n) for n in names[name]], np.float32)
    return of_blocks.reshape(-1, *[1] * (len(x.shape) - 1))

  scaled = {name: scales(name, x) for name, x in flat.items()}
  return flax.traverse_util.unflatten_dict(scaled, sep='/')


def _scale_by_layer(scales: Any) -> optax.GradientTransformation:
  flat = flax.traverse_util.flatten_dict(scales)
  return optax.stateless(
    lambda updates, _: flax.traverse_util.path_aware_map(
      lambda path, u: u * flat[path], updates
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
  layer_scales: Any = None,
  sam_rho: float = 0.0,
) -> optax.GradientTransformation:
  """Returns clipping by global norm, then an optimizer.

  `configs.common` explains the settings. SGD adds the decay to the gradient, the
  others multiply it with the learning rate. `layer_scales` is the result of the
  function of that name; None for the same rate everywhere. With `sam_rho`
  (arXiv:2010.01412), `update` needs `grad_fn`, which maps parameters to their
  gradient.
  """
  common.RULES['optimizer'].check(optimizer, 'optimizer')
  clip = [optax.clip_by_global_norm(grad_norm_clip)] if grad_norm_clip else []
  mask = decay_mask if weight_decay_on == 'kernels' else None
  decay = [optax.add_decayed_weights(weight_decay, mask)]
  if not weight_decay:
    decay = []
  by_layer = [_scale_by_layer(layer_scales)] if layer_scales else []
  directions = _directions(optimizer, momentum, beta2, optim_dtype, decay)
  tx = optax.chain(
    *clip,
    *(per_block.apply(direction) for direction in directions),
    *by_layer,
    optax.scale_by_learning_rate(learning_rate),
  )
  if not sam_rho:
    return tx
  direction = optax.GradientTransformation(
    optax.contrib.normalize().init, _to_unit_norm
  )
  ascent = optax.chain(direction, optax.sgd(sam_rho))
  return optax.contrib.sam(tx, ascent, opaque_mode=True)


def _to_unit_norm(
  gradients: Any, state: Any, params: Any = None
) -> tuple[Any, Any]:
  """Divides gradients by their norm; those of optax become NaN if all are 0."""
  del params
  norm = optax.global_norm(gradients)
  norm = jnp.where(norm > 0, norm, 1)
  return jax.tree.map(lambda g: g / norm, gradients), state


def _directions(
  optimizer: str,
  momentum: float,
  beta2: float,
  dtype: str,
  decay: Sequence[optax.GradientTransformation],
) -> list[optax.GradientTransformation]:
  """Returns the transformations from gradients to steps of unit learning rate.

  Adafactor is the variant of arXiv:2106.04560, Sec. 3.4, in big_vision: with
  momentum and an upper limit of `beta2`, without scaling by the parameter's size
  and without clipping the update.
  """
  if optimizer == 'sgd':
    return [*decay, optax.trace(momentum, accumulator_dtype=dtype)]
  if optimizer == 'adafactor':
    return [
      optax.scale_by_factored_rms(
        min_dim_size_to_factor=32,
        decay_rate_fn=functools.partial(_growing_beta2, largest=beta2),
      ),
      optax.ema(momentum, debias=False, accumulator_dtype=dtype),
      *decay,
    ]
  adam = optax.scale_by_adam(momentum, beta2, mu_dtype=jnp.dtype(dtype))
  if optimizer == 'muon':
    muon = optax.contrib.muon(
      1.0,
      beta=momentum,
      mu_dtype=jnp.dtype(dtype),
      muon_weight_dimension_numbers=_axes_in_blocks,
      consistent_rms=_RMS_OF_ADAM,
    )
    # The Adam of optax.contrib.muon has Nesterov momentum.
    parts = {'muon': optax.chain(muon, optax.scale(-1.0)), 'adam': adam}
    return [optax.partition(parts, _parts_of_muon), *decay]
  if optimizer == 'lamb':
    return [adam, *decay, optax.scale_by_trust_ratio()]
  return [adam, *decay]


def _parts_of_muon(params: Any) -> Any:
  """Returns 'muon' for matrices in blocks, 'adam' for all else."""
  return flax.traverse_util.path_aware_map(
    lambda path, _: 'muon' if _is_in_block(path) else 'adam', params
  )


def _is_in_block(path: tuple[Any, ...]) -> bool:
  """Returns whether a parameter is a matrix in a block."""
  in_block = any(_IN_BLOCK.fullmatch(name) for name in path)
  return in_block and path[-1] in _MATRICES


def _axes_in_blocks(params: Any) -> Any:
  """Returns the input and output axes of each matrix in a block, else None.

  Attention has kernels [D, N, H] and, for its output, [N, H, D].
  """

  def of(path: tuple[Any, ...], x: Any) -> Any:
    if not _is_in_block(path):
      return None
    is_output = path[-2:] == ('out', 'kernel')
    every, inputs = tuple(range(x.ndim)), -1 if is_output else 1
    return optax.contrib.MuonDimensionNumbers(every[:inputs], every[inputs:])

  return flax.traverse_util.path_aware_map(of, params)


def _growing_beta2(step: Any, exponent: float, *, largest: float) -> Any:
  """Returns beta2 of Adafactor (arXiv:1804.04235, Sec. 7.2), at most `largest`."""
  return jnp.minimum(1.0 - (step + 1.0) ** -exponent, largest)
