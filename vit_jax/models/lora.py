"""LoRA: small trained matrices whose product is added to a frozen kernel.

See arXiv:2106.09685, Sec. 4.1. A module with a kernel [in, out] also has `lora_a`
[in, rank] and `lora_b` [rank, out], and its model computes with
kernel + alpha / rank * lora_a @ lora_b. Axes of heads count as one.
"""

from collections.abc import Mapping, Sequence
import math
import re
from typing import Any
import zlib

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from vit_jax.runtime import errors

Params = Mapping[str, Any]

A, B = 'lora_a', 'lora_b'

# Modules that one of `config.lora_targets` stands for, where that is not its name.
_MODULES = {'mlp': r'(MlpBlock_\d+|token_mixing|channel_mixing)/\w+'}

# Axes of the input of the kernels that have more than one.
_INPUT_AXES = {'out': 2}


def add(
  params: Params, rank: int, targets: Sequence[str], seed: int
) -> dict[str, Any]:
  """Returns parameters with matrices that change nothing yet: `lora_b` is 0.

  Args:
    params: those of a model whose blocks are not stacked.
    rank: columns of `lora_a`.
    targets: see `config.lora_targets`.
    seed: seeds `lora_a`; each module draws its own, by its name.

  Raises:
    errors.UserError: if the model has no such module.
  """
  flat = flax.traverse_util.flatten_dict(dict(params), sep='/')
  found = [name for name in flat if _target(name, targets)]
  if not found:
    raise errors.UserError(
      f'config.lora_targets is {tuple(targets)}, but the model has none of these'
      f' modules.'
    )
  for name in found:
    module = name.removesuffix('/kernel')
    rows, columns = _sizes(name, flat[name].shape)
    key = jax.random.fold_in(jax.random.key(seed), zlib.crc32(module.encode()))
    flat[f'{module}/{A}'] = jax.random.normal(key, (rows, rank)) / math.sqrt(
      rows
    )
    flat[f'{module}/{B}'] = jnp.zeros((rank, columns))
  return flax.traverse_util.unflatten_dict(flat, sep='/')


def _target(name: str, targets: Sequence[str]) -> bool:
  """Whether an array is a kernel that LoRA changes."""
  return any(
    re.search(rf'(^|/){_MODULES.get(target, target)}/kernel$', name)
    for target in targets
  )


def _sizes(name: str, shape: tuple[int, ...]) -> tuple[int, int]:
  """Returns the sizes of input and output of a kernel of one block."""
  axes = _INPUT_AXES.get(name.split('/')[-2], 1)
  return math.prod(shape[:axes]), math.prod(shape[axes:])


def frozen(heads: Sequence[str]) -> str:
  """Returns the pattern of all parameters but the matrices and the heads."""
  trained = '|'.join([rf'.*/({A}|{B})$', *(f'{head}/' for head in heads)])
  return f'(?!{trained})'


def has(params: Params) -> bool:
  """Whether some modules have the matrices."""
  flat = flax.traverse_util.flatten_dict(dict(params))
  return any(path[-1] == A for path in flat)


def merge(params: Params, alpha: float) -> dict[str, Any]:
  """Returns the parameters of the model: plain kernels, without the matrices."""
  merged: dict[str, Any] = {}
  for name, value in params.items():
    if not isinstance(value, Mapping):
      merged[name] = value
    elif A in value:
      merged[name] = {k: v for k, v in value.items() if k not in (A, B)}
      merged[name]['kernel'] = _changed(value, alpha)
    else:
      merged[name] = merge(value, alpha)
  return merged


def _changed(module: Params, alpha: float) -> Any:
  kernel, a, b = module['kernel'], module[A], module[B]
  # Stacked blocks have one more axis in front, which `@` takes as it is.
  change = (alpha / a.shape[-1]) * (a @ b).reshape(kernel.shape)
  return kernel + change.astype(kernel.dtype)


def matrices(params: Params) -> dict[str, np.ndarray]:
  """Returns the matrices alone, by their names."""
  flat = flax.traverse_util.flatten_dict(dict(params), sep='/')
  return {
    name: np.asarray(x)
    for name, x in flat.items()
    if name.rpartition('/')[2] in (A, B)
  }
