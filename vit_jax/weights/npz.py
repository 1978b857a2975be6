"""Official `.npz` checkpoints: released, Linen's or big_vision's names."""

from collections.abc import Mapping
import math
import pathlib
import re
from typing import Any

import numpy as np

from vit_jax.models import blocks
from vit_jax.runtime import errors
from vit_jax.weights import array_files
from vit_jax.weights import infer
from vit_jax.weights import record as weights_lib

_GROUP_NORM = re.compile(r'gn(\d+|_root|_proj)')


def read(path: pathlib.Path) -> weights_lib.Weights:
  """Reads an `.npz`, in any of the three namings.

  Raises:
    errors.UserError: if it is no checkpoint.
  """
  return from_flat(array_files.read_npz(path), path)


def from_flat(
  flat: Mapping[str, np.ndarray], path: pathlib.Path
) -> weights_lib.Weights:
  """Returns the weights that arrays named 'module/name' are."""
  params = params_of(flat, path)
  model, image_size = infer.model_of(params, path.stem)
  weights = weights_lib.Weights(
    params=params,
    model=model,
    class_names=weights_lib.numbered_classes(params) if model else (),
    preprocessing=infer.preprocessing(params, image_size),
  )
  weights_lib.check(weights, str(path))
  return weights


def params_of(
  flat: Mapping[str, np.ndarray], path: pathlib.Path
) -> dict[str, Any]:
  """Returns the parameters that arrays named 'module/name' are, unchecked.

  Raises:
    errors.UserError: if the names are those of no parameter tree.
  """
  # big_vision saves the optimizer's state beside the parameters.
  prefix = 'params/'
  if any(name.startswith(prefix) for name in flat):
    flat = {
      name.removeprefix(prefix): x
      for name, x in flat.items()
      if name.startswith(prefix)
    }
  names = set(flat)
  nested = [n for n in names if any(m.startswith(f'{n}/') for m in names)]
  if not flat or nested:
    raise errors.UserError(
      f'{path} is no checkpoint: it holds {len(flat)} arrays, of which'
      f' {nested[:3]} are also the names of modules.'
    )
  params = to_linen(weights_lib.unflatten(flat))
  if 'pos_embedding' in params and 'embedding' in params:
    params = _from_big_vision(params, path)
  return params


def to_linen(params: Mapping[str, Any]) -> dict[str, Any]:
  """Renames modules as Linen does; Linen names pass unchanged.

  Before Linen, unnamed modules of one parent were numbered together
  (`LayerNorm_0`, `MultiHeadDotProductAttention_1`, `LayerNorm_2`); Linen counts
  each class alone. Modules given a name start in lower case and keep it.
  Group-norm arrays [1, 1, 1, C], as they were, become [C].
  """
  numbers: dict[str, list[int]] = {}
  for name in params:
    if match := re.fullmatch(r'([A-Z]\w*)_(\d+)', name):
      numbers.setdefault(match[1], []).append(int(match[2]))
  rename = {
    f'{cls}_{old}': f'{cls}_{new}'
    for cls, olds in numbers.items()
    for new, old in enumerate(sorted(olds))
  }
  linen = {}
  for name, x in params.items():
    if isinstance(x, Mapping):
      x = to_linen(x)
      if _GROUP_NORM.fullmatch(name):
        x = {key: np.reshape(array, -1) for key, array in x.items()}
    linen[rename.get(name, name)] = x
  return linen


def _from_big_vision(
  params: dict[str, Any], path: pathlib.Path
) -> dict[str, Any]:
  """Moves what big_vision has elsewhere to where the official code has it."""
  if 'MAPHead_0' in params:
    raise errors.UserError(
      f'{path} pools by attention (big_vision, pool_type=map), which no model'
      f' here does.'
    )
  # Its scan=True stacks the blocks.
  encoder = blocks.unstack(params['Transformer'])
  posemb = params['pos_embedding']
  if 'cls' in params:
    posemb = with_class_token(posemb)
  encoder['posembed_input'] = {'pos_embedding': posemb}
  rest = {k: v for k, v in params.items() if k != 'pos_embedding'}
  return {**rest, 'Transformer': encoder}


def with_class_token(
  posemb: np.ndarray, num_patches: int | None = None
) -> np.ndarray:
  """Adds a position embedding of zeros for a class token that has none.

  Args:
    posemb: [1, L, D].
    num_patches: if L is another number, the class token has one already; None
      if it is not known, and the grid is square.
  """
  length = posemb.shape[1]
  if length != (num_patches or math.isqrt(length) ** 2):
    return posemb
  return np.pad(posemb, ((0, 0), (1, 0), (0, 0)))
