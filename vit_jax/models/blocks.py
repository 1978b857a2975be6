"""Depth: how equal blocks follow each other, and how their parameters are kept.

Unrolled, each block has a parameter tree of its own, as in the official
checkpoints. Scanned, all blocks are one program and one tree whose arrays have the
depth as their first axis: compile time no longer grows with depth, and
recomputation (`remat`) frees memory on every backend.
"""

from collections.abc import Callable, Mapping
import re
from typing import Any

import flax.linen as nn
import jax
from jax.experimental import layout
import jax.numpy as jnp
from jaxtyping import Array, Float
import numpy as np

from vit_jax.configs import spec
from vit_jax.models import arithmetic
from vit_jax.runtime import sharding

Tokens = Float[Array, 'B L D']

_save = jax.checkpoint_policies.save_only_these_names

# What the backward pass keeps of a block instead of computing it again, named
# like JAX's policies. Those do not see the products of `arithmetic.einsum` in
# bfloat16, and would keep them in float32.
REMAT_POLICIES = {
  'full': _save(),
  'dots_saveable': _save('dense', 'attention'),
  'dots_with_no_batch_dims_saveable': _save('dense'),
}

_UNROLLED = re.compile(rf'({"|".join(spec.BLOCKS)})_(\d+)')


def apply_blocks(
  make_block: Callable[..., nn.Module],
  name: str,
  x: Tokens,
  *inputs: Array,
  depth: int,
  deterministic: bool,
  stochastic_depth_rate: float = 0.0,
  remat: str = '',
  scan: bool = False,
) -> Tokens:
  """Applies `depth` blocks one after the other.

  Args:
    make_block: takes a `name`; returns a module that is called with tokens, the
      rate of stochastic depth and `inputs`.
    name: name of the blocks; unrolled ones get a number.
    x: input of the first block.
    *inputs: further inputs, the same for each block.
    depth: number of blocks.
    deterministic: whether nothing is dropped.
    stochastic_depth_rate: rate of the last block; it grows linearly from 0.
    remat: '' or a name in `REMAT_POLICIES`.
    scan: whether the parameters are stacked.
  """
  if not deterministic:
    x = _width_last(x)

  def apply_block(
    block: nn.Module, x: Tokens, rate: Any
  ) -> tuple[Tokens, None]:
    x = sharding.split_batch(x)
    x = block(x, rate, *inputs, deterministic=deterministic)
    return sharding.split_batch(x), None

  if remat:
    # Within a scan there are no equal computations to be merged.
    apply_block = nn.remat(
      apply_block, policy=REMAT_POLICIES[remat], prevent_cse=not scan
    )
  rates = np.linspace(0, stochastic_depth_rate, depth, dtype=np.float32)
  if scan:
    apply_all = nn.scan(
      apply_block,
      variable_axes={'params': 0, 'intermediates': 0},
      split_rngs={'params': True, 'dropout': True},
      length=depth,
    )
    scanned = jnp.asarray(rates) if stochastic_depth_rate else None
    return apply_all(make_block(name=name), x, scanned)[0]
  for i, rate in enumerate(rates):
    x, _ = apply_block(make_block(name=f'{name}_{i}'), x, float(rate) or None)
  return x


def _width_last(x: Tokens) -> Tokens:
  """Makes the width of tokens the fastest axis in the memory of GPUs.

  Otherwise XLA makes that the batch, and transposes the tokens around each product.
  `jax.export` refuses a program with this, so it is for training alone.
  """
  if arithmetic.platform() != 'gpu':
    return x
  order = layout.Layout((0, 1, 2))
  return sharding.on_parts(lambda x: layout.with_layout_constraint(x, order), x)


def drop_branch(
  module: nn.Module,
  y: Tokens,
  rate: float | Float[Array, ''] | None,
  *,
  deterministic: bool,
) -> Tokens:
  """Drops a residual branch of some images (arXiv:1603.09382).

  Args:
    module: the block; its random stream decides.
    y: the branch.
    rate: probability to drop an image's branch; the others are scaled up. None:
      never.
    deterministic: whether nothing is dropped.
  """
  if rate is None or deterministic:
    return y
  keep, shape = 1.0 - rate, (y.shape[0], 1, 1)
  kept = jax.random.bernoulli(module.make_rng('dropout'), keep, shape)
  return y * (kept / keep).astype(y.dtype)


def drop_patches(
  module: nn.Module,
  x: Tokens,
  rate: float,
  num_prefix_tokens: int,
  *,
  deterministic: bool,
) -> Float[Array, 'B K D']:
  """Leaves out random patches, chosen for each image alone (arXiv:2208.07220).

  Args:
    module: its random stream decides which.
    x: tokens, with their position embeddings.
    rate: share of the patches that is left out; at least one stays.
    num_prefix_tokens: number of tokens before the patches; all of them stay.
    deterministic: whether nothing is left out.

  Returns:
    The K tokens that stay; the patches among them have no order.
  """
  if not rate or deterministic:
    return x
  prefix, patches = x[:, :num_prefix_tokens], x[:, num_prefix_tokens:]
  length = max(1, round((1.0 - rate) * patches.shape[1]))
  noise = jax.random.uniform(module.make_rng('dropout'), patches.shape[:2])
  _, kept = jax.lax.top_k(noise, length)
  patches = jnp.take_along_axis(patches, kept[:, :, None], axis=1)
  return jnp.concatenate((prefix, patches), axis=1)


def stack(params: Mapping[str, Any]) -> dict[str, Any]:
  """Returns parameters with stacked blocks, for a model that scans them."""
  blocks: dict[str, dict[int, Any]] = {}
  stacked = {}
  for name, value in params.items():
    if match := _UNROLLED.fullmatch(name):
      blocks.setdefault(match[1], {})[int(match[2])] = value
    else:
      stacked[name] = stack(value) if isinstance(value, Mapping) else value
  for name, by_index in blocks.items():
    trees = [by_index[i] for i in range(len(by_index))]
    stacked[name] = jax.tree.map(_stack_arrays, *trees)
  return stacked


def _stack_arrays(*arrays: Any) -> Any:
  # NumPy arrays stay in memory: a device may have no room for all of them.
  on_host = all(isinstance(x, np.ndarray) for x in arrays)
  return np.stack(arrays) if on_host else jnp.stack(arrays)


def unstack(params: Mapping[str, Any]) -> dict[str, Any]:
  """Returns parameters with a tree for each block; undoes `stack`."""
  unstacked = {}
  for name, value in params.items():
    if name in spec.BLOCKS:
      for i in range(len(jax.tree.leaves(value)[0])):
        unstacked[f'{name}_{i}'] = jax.tree.map(lambda x, i=i: x[i], value)
    else:
      unstacked[name] = unstack(value) if isinstance(value, Mapping) else value
  return unstacked


def official_names(name: str, x: Any) -> list[str]:
  """Returns the unrolled names of an array: one for each block if it is stacked.

  Args:
    name: path in a parameter tree, such as 'Transformer/encoderblock/...'.
    x: the array, or its shape.
  """
  parts = name.split('/')
  for i, part in enumerate(parts):
    if part in spec.BLOCKS:
      return [
        '/'.join([*parts[:i], f'{part}_{block}', *parts[i + 1 :]])
        for block in range(x.shape[0])
      ]
  return [name]


def stack_of(path: tuple[Any, ...]) -> str:
  """Returns the path of the stack that holds an array; '' if it is not stacked.

  `path` is that of an array of parameters in `jax.tree_util`. An optimizer state
  may have it too, after paths of its own.
  """
  parts = jax.tree_util.keystr(path, simple=True, separator='/').split('/')
  ends = [i for i, part in enumerate(parts, 1) if part in spec.BLOCKS]
  return '/'.join(parts[: ends[0]]) if ends else ''


def depths(params: Any) -> dict[str, int]:
  """Returns the depth of each stack by its path; each tower has a stack."""
  leaves = jax.tree_util.tree_leaves_with_path(params)
  return {stack: x.shape[0] for path, x in leaves if (stack := stack_of(path))}
