"""Converts PyTorch's names and axes to ours and back, by a table of names."""

from collections.abc import Callable, Collection, Iterable, Mapping
import re
from typing import Any

import numpy as np

from vit_jax.configs import spec
from vit_jax.weights import record as weights_lib

Modules = Iterable[tuple[str, str]]  # (official name, PyTorch's name)

_MAX_BLOCKS = 128
_NORM = re.compile(r'(LayerNorm_\d+|\w*norm|gn\w+)$')
_NO_BIAS = re.compile(r'(conv\w*)$')
_SPLIT_HEADS = re.compile(r'/(query|key|value)/')
_BLOCK = re.compile(rf'(.*({"|".join(spec.BLOCKS)})_\d+)/.*')


def array_names(modules: Modules) -> dict[str, str]:
  """Returns {official name of an array: PyTorch's}."""
  names = {}
  for ours, theirs in modules:
    weight = 'scale' if _NORM.search(ours) else 'kernel'
    names[f'{ours}/{weight}'] = f'{theirs}.weight'
    if not _NO_BIAS.search(ours):
      names[f'{ours}/bias'] = f'{theirs}.bias'
  return names


def blocks(ours: str, theirs: str, table: Modules) -> Modules:
  """Returns the modules of the deepest model, from those of one block."""
  return [
    (f'{ours.format(i)}/{a}', f'{theirs.format(i)}.{b}')
    for i in range(_MAX_BLOCKS)
    for a, b in table
  ]


def renamed(
  arrays: Mapping[str, np.ndarray],
  names: Mapping[str, str],
  needed: Collection[str] = (),
) -> dict[str, np.ndarray]:
  """Returns {official name: array}, with PyTorch's axes.

  Args:
    arrays: by PyTorch's names.
    names: PyTorch's names of all arrays that a model may have.
    needed: modules that each model has.

  Raises:
    WeightsError: if there are other arrays, or incomplete modules or blocks.
  """
  flat = {ours: arrays[name] for ours, name in names.items() if name in arrays}
  parts = {*needed, *map(part, flat)}
  extra = sorted(arrays.keys() - {names[ours] for ours in flat})
  missing = sorted(
    theirs
    for ours, theirs in names.items()
    if part(ours) in parts and ours not in flat
  )
  if missing or extra:
    lacks = f' It lacks {_some(missing)}.' if missing else ''
    left = f' No such model has {_some(extra)}.' if extra else ''
    raise weights_lib.WeightsError(
      f'is of another architecture, or incomplete: {len(missing)} arrays are'
      f' missing, {len(extra)} left over.{lacks}{left}'
    )
  return flat


def part(name: str) -> str:
  """Returns the block of an array, or its module outside of blocks."""
  match = _BLOCK.fullmatch(name)
  return match[1] if match else name.rpartition('/')[0] or name


def _some(names: list[str]) -> str:
  more = ' and others' if len(names) > 3 else ''
  return ', '.join(names[:3]) + more


def to_linen(
  flat: Mapping[str, np.ndarray],
  names: Mapping[str, str],
  num_heads: int | Callable[[str], int],
) -> dict[str, Any]:
  """Returns parameters with our axes from `renamed`; no array is copied.

  `num_heads` may be a function of our name of an array.
  """
  params = {}
  for name, x in flat.items():
    heads = num_heads(name) if callable(num_heads) else num_heads
    try:
      params[name] = _from_torch(name, x, heads)
    except (TypeError, ValueError) as e:
      raise weights_lib.WeightsError(
        f'has {names[name]} of shape {x.shape}, which {heads!r} heads do not'
        f' divide.'
      ) from e
  return weights_lib.unflatten(params)


def from_linen(
  params: weights_lib.Params, names: Mapping[str, str]
) -> dict[str, np.ndarray]:
  """Undoes `renamed` and `to_linen`."""
  flat = weights_lib.flatten(params)
  return {
    names[name]: _to_torch(name, np.asarray(x)) for name, x in flat.items()
  }


def _from_torch(name: str, x: np.ndarray, num_heads: int) -> np.ndarray:
  if _SPLIT_HEADS.search(name):
    # [D, N * H] or [N * H] to [D, N, H] or [N, H].
    return x.T.reshape(*x.T.shape[:-1], num_heads, -1)
  if name.endswith('/out/kernel'):
    return x.T.reshape(num_heads, -1, x.shape[0])
  if name.endswith('/kernel'):
    return x.transpose(2, 3, 1, 0) if x.ndim == 4 else x.T
  return x


def _to_torch(name: str, x: np.ndarray) -> np.ndarray:
  if _SPLIT_HEADS.search(name):
    return x.reshape(*x.shape[:-2], -1).T
  if name.endswith('/out/kernel'):
    return x.reshape(-1, x.shape[-1]).T
  if name.endswith('/kernel'):
    return x.transpose(3, 2, 0, 1) if x.ndim == 4 else x.T
  return x
