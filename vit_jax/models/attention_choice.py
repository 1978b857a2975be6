"""Chooses the fastest implementation of attention that is right, by measurement."""

import time
from typing import Any

from absl import logging
import jax
from jax.experimental import multihost_utils
import jax.numpy as jnp
from jaxtyping import Array
import numpy as np
import optax

from vit_jax.models import attention
from vit_jax.runtime import errors

_REPEATS = 10
# Largest relative error of the gradients. Rounding to bfloat16 gives 0.004.
_TOLERANCE = 0.05


def choose(
  setting: str,
  *,
  batch: int,
  tokens: int,
  width: int,
  num_heads: int,
  dtype: str,
  heads_are_split: bool,
  pads_in_blocks: bool = False,
  before: str | None = None,
) -> str:
  """Returns a name in `attention.ATTENTION`.

  Args:
    setting: a name, or 'auto', which measures where there is a choice.
    batch: images at a time on a device.
    tokens: tokens of an image.
    width: D of the tokens.
    num_heads: attention heads.
    dtype: precision of the model.
    heads_are_split: whether the heads are on several devices.
    pads_in_blocks: whether an odd number of tokens is padded in each block, not
      before the first.
    before: what this run has used so far; 'auto' keeps it, so that a resumed run
      ends with the same bits. None at the start.

  Raises:
    errors.UserError: if `setting` is 'cudnn' and cuDNN cannot be used.
  """
  possible = (
    jax.default_backend() == 'gpu'
    and dtype == 'bfloat16'
    and not heads_are_split
  )
  if setting == 'cudnn' and not possible:
    raise errors.UserError(
      f"config.attention is 'cudnn', which needs a GPU (here:"
      f" {jax.default_backend()}), config.dtype='bfloat16' (here: {dtype!r}) and"
      f" config.mesh.model=1. Try 'auto'."
    )
  if setting != 'auto':
    return setting
  if not possible:
    if before == 'cudnn':
      logging.warning(
        "This run used attention 'cudnn' so far, which is not possible here: from"
        " now on it is 'xla', whose results differ by rounding."
      )
    return 'xla'
  if before in attention.ATTENTION:
    return before
  return _fastest((batch, tokens, width), num_heads, pads_in_blocks)


def _fastest(
  shape: tuple[int, int, int], num_heads: int, pads_in_blocks: bool
) -> str:
  """Returns the fastest implementation whose gradients equal those of XLA."""
  times, right = {}, None
  for name in attention.ATTENTION:  # The first one, XLA's, is the reference.
    times[name], gradients = _measured(name, shape, num_heads, pads_in_blocks)
    right = gradients if right is None else right
    if gradients is not None and not _near(gradients, right):
      logging.warning('No attention by %s: its gradients are wrong.', name)
      times[name] = float('inf')
  best = min(times, key=lambda name: times[name])
  logging.info(
    'Attention on %s: %s.',
    shape,
    ', '.join(f'{name} {1e3 * s:.2f} ms' for name, s in times.items()),
  )
  # All hosts must compile the same program.
  index = list(attention.ATTENTION).index(best)
  index = int(multihost_utils.broadcast_one_to_all(np.int32(index)))
  return attention.ATTENTION[index]


def _measured(
  name: str,
  shape: tuple[int, int, int],
  num_heads: int,
  pads_in_blocks: bool,
) -> tuple[float, Any]:
  """Returns seconds of a forward and backward pass, and gradients; (inf, None) on failure."""
  tokens = shape[1]
  pads = name == 'cudnn' and not pads_in_blocks
  layer = attention.MultiHeadDotProductAttention(
    num_heads,
    implementation=name,
    dtype='bfloat16',
    masked=tokens % 2 if pads else 0,
  )
  x = jax.random.normal(jax.random.key(0), shape, jnp.bfloat16)

  def total(params: Any, x: Array) -> Array:
    x = attention.pad_to_even(x) if pads else x
    y: Any = layer.apply(params, x, deterministic=True)
    return jnp.sum(jnp.square(y[:, :tokens].astype(jnp.float32)))

  try:
    params = layer.init(jax.random.key(1), x[:1], deterministic=True)
    step = jax.jit(jax.grad(total, argnums=(0, 1)))
    jax.block_until_ready(step(params, x))
    start = time.perf_counter()
    for _ in range(_REPEATS):
      gradients = step(params, x)
    jax.block_until_ready(gradients)
  except Exception as e:  # JAX, XLA and cuDNN each raise their own.
    reason = (str(e).strip() or type(e).__name__).splitlines()[0]
    logging.info('No attention by %s: %s', name, reason)
    return float('inf'), None
  return (time.perf_counter() - start) / _REPEATS, gradients


def _near(gradients: Any, right: Any) -> bool:
  """Returns whether gradients are within `_TOLERANCE` of the right ones; NaN is not."""
  gradients, right = (
    jax.tree.map(lambda x: x.astype(jnp.float32), tree)
    for tree in (gradients, right)
  )
  wrong = jax.tree.map(jnp.subtract, gradients, right)
  return bool(optax.global_norm(wrong) <= _TOLERANCE * optax.global_norm(right))
