"""From PyTorch's names and axes to ours and back, by a table of modules."""

from collections.abc import Iterable, Mapping
import re
from typing import Any

import numpy as np

from vit_jax.runtime import errors
from vit_jax.weights import record as weights_lib

Modules = Iterable[tuple[str, str]]  # (official name, PyTorch's name)

_NORM = re.compile(r'(LayerNorm_\d+|\w*norm|gn\w+)$')
_NO_BIAS = re.compile(r'(conv\w*)$')
_SPLIT_HEADS = re.compile(r'/(query|key|value)/')


def array_names(modules: Modules) -> dict[str, str]:
  """Returns {official name of an array: PyTorch's}."""
  names = {}
  for ours, theirs in modules:
    weight = 'scale' if _NORM.search(ours) else 'kernel'
    names[f'{ours}/{weight}'] = f'{theirs}.weight'
    if not _NO_BIAS.search(ours):
      names[f'{ours}/bias'] = f'{theirs}.bias'
  return names


def to_linen(
  arrays: Mapping[str, np.ndarray],
  names: Mapping[str, str],
  num_heads: int,
  path: str,
) -> dict[str, Any]:
  """Returns parameters with official names; no array is copied.

  Args:
    arrays: by PyTorch's names; see `check_names`.
    names: of `array_names`.
    num_heads: of the attention.
    path: where they are from, for messages.

  Raises:
    errors.UserError: if the heads do not divide an array.
  """
  flat = {}
  for ours, theirs in names.items():
    try:
      flat[ours] = _from_torch(ours, arrays[theirs], num_heads)
    except (TypeError, ValueError) as e:
      raise errors.UserError(
        f'{path}: {theirs} has shape {arrays[theirs].shape}, which'
        f' {num_heads!r} heads do not divide.'
      ) from e
  return weights_lib.unflatten(flat)


def check_names(
  arrays: Mapping[str, np.ndarray], names: Mapping[str, str], path: str
) -> None:
  """Raises `errors.UserError` unless all arrays are there, and no others."""
  missing = sorted(set(names.values()) - arrays.keys())
  extra = sorted(arrays.keys() - set(names.values()))
  if missing or extra:
    lacks = f' It lacks {_some(missing)}.' if missing else ''
    left = f' No such model has {_some(extra)}.' if extra else ''
    raise errors.UserError(
      f'{path} is of another architecture, or not whole: {len(missing)} arrays'
      f' are missing, {len(extra)} left over.{lacks}{left}'
    )


def _some(names: list[str]) -> str:
  more = ' and others' if len(names) > 3 else ''
  return ', '.join(names[:3]) + more


def from_linen(
  params: weights_lib.Params, names: Mapping[str, str]
) -> dict[str, np.ndarray]:
  """Undoes `to_linen`."""
  flat = weights_lib.flatten(params)
  return {
    theirs: _to_torch(ours, np.asarray(flat[ours]))
    for ours, theirs in names.items()
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


def blocks(
  depth: int, ours: str, theirs: str, table: Modules
) -> Iterable[tuple[str, str]]:
  """Yields a table of modules for each of `depth` blocks."""
  for i in range(depth):
    for a, b in table:
      yield f'{ours.format(i)}/{a}', f'{theirs.format(i)}.{b}'
