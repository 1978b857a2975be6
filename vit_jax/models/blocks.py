"""Depth: how equal blocks follow each other, and which of their branches drop.

Unrolled, the parameters of each block are a tree of their own, as in the
official checkpoints. Scanned, all blocks are one program and one tree, whose
arrays have the depth as their first axis: compilation takes no longer for a
deeper model, and recomputation (`remat`) really frees memory on every backend.
"""

from collections.abc import Callable, Mapping
import re
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
import numpy as np

from vit_jax.configs import spec
from vit_jax.runtime import sharding

Tokens = Float[Array, 'B L D']

_save = jax.checkpoint_policies.save_only_these_names

# What the backward pass keeps of a block instead of computing it again, named
# as JAX's policies. These do not see the products of `layers.einsum` in
# bfloat16, and would keep them in float32.
REMAT_POLICIES = {
  'full': _save(),
  'dots_saveable': _save('dense', 'attention'),
  'dots_with_no_batch_dims_saveable': _save('dense'),
}

_UNROLLED = re.compile(rf'({"|".join(spec.BLOCKS)})_(\d+)')


def apply_blocks(
  make_block: Callable[[str], nn.Module],
  name: str,
  x: Tokens,
  *,
  depth: int,
  stochastic_depth_rate: float,
  deterministic: bool,
  remat: str = '',
  scan: bool = False,
) -> Tokens:
  """Applies `depth` blocks one after the other.

  Args:
    make_block: name to module, called with tokens and the rate of stochastic
      depth, which grows linearly with depth, from 0.
    name: of the blocks, before `_0` where they are unrolled.
    x: input of the first one.
    depth: number of blocks.
    stochastic_depth_rate: that of the last block.
    deterministic: whether nothing is dropped.
    remat: '' or a name in `REMAT_POLICIES`.
    scan: whether the parameters are stacked.
  """

  def apply_block(
    block: nn.Module, x: Tokens, rate: Any
  ) -> tuple[Tokens, None]:
    x = block(sharding.split_batch(x), rate, deterministic=deterministic)
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
    rates = jnp.asarray(rates) if stochastic_depth_rate else None
    return apply_all(make_block(name), x, rates)[0]
  for i, rate in enumerate(rates):
    x, _ = apply_block(make_block(f'{name}_{i}'), x, float(rate) or None)
  return x


def drop_branch(
  module: nn.Module,
  y: Tokens,
  rate: float | Float[Array, ''] | None,
  *,
  deterministic: bool,
) -> Tokens:
  """Drops a residual branch for some images (arXiv:1603.09382).

  Args:
    module: whose random numbers are used.
    y: the branch.
    rate: probability for one image of the batch; the others are scaled up.
      None: never.
    deterministic: whether nothing is dropped.
  """
  if rate is None or deterministic:
    return y
  keep = 1.0 - rate
  kept = jax.random.bernoulli(
    module.make_rng('dropout'), keep, (y.shape[0], 1, 1)
  )
  return y * (kept / keep).astype(y.dtype)


def stack(params: Mapping[str, Any]) -> dict[str, Any]:
  """Returns parameters with the blocks stacked, as scanned models have them.

  Args:
    params: tree of arrays; modules without blocks stay as they are.
  """
  blocks: dict[str, dict[int, Any]] = {}
  stacked = {}
  for name, value in params.items():
    if match := _UNROLLED.fullmatch(name):
      blocks.setdefault(match[1], {})[int(match[2])] = value
    else:
      stacked[name] = stack(value) if isinstance(value, Mapping) else value
  for name, by_index in blocks.items():
    trees = [by_index[i] for i in range(len(by_index))]
    stacked[name] = jax.tree.map(lambda *x: _stack_arrays(x), *trees)
  return stacked


def official_names(name: str, x: Any) -> list[str]:
  """Returns the names of an array when unrolled: one a block if it is stacked.

  Args:
    name: path in a tree of parameters, 'Transformer/encoderblock/...' say.
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


def depth_axes(tree: Any) -> Any:
  """Returns the axis of depth of each array: 0, or None if it is not stacked.

  Args:
    tree: parameters, or what is named as they are: the state of an optimizer.
  """

  def axis(path: tuple[Any, ...], _: Any) -> int | None:
    name = jax.tree_util.keystr(path, simple=True, separator='/')
    return 0 if set(spec.BLOCKS) & set(name.split('/')) else None

  return jax.tree_util.tree_map_with_path(axis, tree)


def _stack_arrays(arrays: tuple[Any, ...]) -> Any:
  # Those in memory stay there: a device may have no room for all of them.
  on_host = all(isinstance(x, np.ndarray) for x in arrays)
  return np.stack(arrays) if on_host else jnp.stack(arrays)


def unstack(params: Mapping[str, Any]) -> dict[str, Any]:
  """Returns parameters with a tree for each block; undoes `stack`."""
  unstacked = {}
  for name, value in params.items():
    if name in spec.BLOCKS:
      depth = len(jax.tree.leaves(value)[0])
      for i in range(depth):
        unstacked[f'{name}_{i}'] = jax.tree.map(lambda x, i=i: x[i], value)
    else:
      unstacked[name] = unstack(value) if isinstance(value, Mapping) else value
  return unstacked
