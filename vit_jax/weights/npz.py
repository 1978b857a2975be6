"""Official `.npz` checkpoints, named by the release, Linen or big_vision."""

from collections.abc import Mapping
import dataclasses
import pathlib
import re
import textwrap
from typing import Any

from absl import logging
import numpy as np
import numpy.typing as npt

from vit_jax.configs import models as model_configs
from vit_jax.configs import registry
from vit_jax.configs import spec
from vit_jax.data import preprocessing
from vit_jax.runtime import errors
from vit_jax.weights import array_files
from vit_jax.weights import big_vision
from vit_jax.weights import checks
from vit_jax.weights import extras
from vit_jax.weights import infer
from vit_jax.weights import record as weights_lib
from vit_jax.weights import released
from vit_jax.weights import token_positions

_GROUP_NORM = re.compile(r'gn(\d+|_root|_proj)')


def find(path: pathlib.Path) -> pathlib.Path | None:
  """Returns `path` unless it is a `.safetensors` with names of a library."""
  if not array_files.is_safetensors(path):
    return path
  names = array_files.safetensors_names(path)
  return path if any('/' in name for name in names) else None


def read(path: pathlib.Path) -> weights_lib.Weights:
  """Reads an `.npz`, or a `.safetensors` with the same names."""
  if array_files.is_safetensors(path):
    arrays = array_files.read_safetensors(path)
  else:
    arrays = array_files.read_npz(path)
  weights = described(arrays, path.stem)
  checks.check(weights)
  return weights


def described(
  arrays: Mapping[str, Any], model_name: str
) -> weights_lib.Weights:
  """Returns the weights in the arrays of a file, not checked against the model."""
  params = big_vision.with_positions(params_of(arrays))
  return _described(params, model_name)


def write(
  weights: weights_lib.Weights, path: pathlib.Path, dtype: npt.DTypeLike
) -> None:
  """Writes an `.npz` and warns about the fields it cannot hold.

  Names are the official ones, or big_vision's of models that only it has.

  Raises:
    errors.UserError: for another ending, or what no array tells: rotations, no
      position embeddings, no LayerNorm after the blocks.
  """
  if path.suffix != '.npz':
    raise errors.UserError(f'{path} must end in .npz.')
  if (weights.model or {}).get('rotary_base'):
    raise errors.UserError(
      'An .npz does not hold rotations of queries and keys, which these weights'
      ' have. Try to=huggingface or to=timm.'
    )
  what = spec.of(weights.model) if weights.model else None
  has_none = what and not what.position_embeddings
  if what and has_none and what.family == 'vit' and what.depth:
    raise errors.UserError(
      'An .npz without position embeddings is read as one of big_vision, which'
      ' computes them, but these weights have none. Try to=timm.'
    )
  if what and not what.ends_with_norm:
    raise errors.UserError(
      'An .npz is read as a ViT with a LayerNorm after its blocks, which these'
      ' weights have not. Try to=huggingface.'
    )
  if what and what.family == 'vit':
    weights = token_positions.positioned(weights)
  lost = extras.lost(weights, _described(weights.params, ''))
  (lost.get('model') or {}).pop('model_name', None)
  values = ', '.join(f'{name} {value}' for name, value in lost.items() if value)
  if values:
    values = textwrap.shorten(values, 500)
    logging.warning('%s holds only arrays. It loses %s.', path, values)
  params = weights.params
  if big_vision.is_needed(weights.model):
    params = big_vision.from_official(params)
  array_files.write_npz(weights_lib.flatten(params), path, dtype)


def _described(
  params: weights_lib.Params, model_name: str
) -> weights_lib.Weights:
  """Returns parameters with all that their names and shapes tell."""
  image, text = params.get('img', {}), params.get('txt', {})
  if 'MAPHead_0' not in image or 'Encoder_0' not in text:
    weights = infer.described(params, model_name)
    lit = released.lit_name(model_name) if image and text else None
    return as_lit(weights, lit) if lit else weights
  weights = infer.described(image, model_name)
  vocab_size, width = text['Embed_0']['embedding'].shape
  sizes = infer.encoder_sizes(text['Encoder_0'])
  image_dim, text_dim = (
    len(tower['head']['bias']) if 'head' in tower else None
    for tower in (image, text)
  )
  tower = dict(weights.known_model())
  model = {
    'model_name': tower.pop('model_name'),
    **big_vision.two_towers(
      tower,
      {'width': width, **sizes, 'vocab_size': vocab_size},
      (image_dim, text_dim),
      text['pos_embedding'].shape[1],
    ),
  }
  how = weights.preprocessing
  entry = registry.entries().get(model_name)
  if entry and entry.resolution:  # So400m/14 does not read the last pixels.
    how = how.changed({'size': (entry.resolution, entry.resolution)})
  if how.size:
    model['pp']['size'] = how.size[0]
  if 'b' not in params:
    model['bias_init'] = None
  return dataclasses.replace(
    weights,
    params=params,
    model=model,
    preprocessing=how,
    class_names=[],
    loss='sigmoid' if 'b' in params else 'softmax',
  )


def as_lit(weights: weights_lib.Weights, name: str) -> weights_lib.Weights:
  """Returns weights as those of a released LiT, whose `.npz` holds only arrays.

  Args:
    weights: the arrays of the file; they are not checked.
    name: a released LiT such as `LiT-B16B`.
  """
  model = model_configs.get_model_config(name).to_dict()
  size = model['pp']['size']
  return dataclasses.replace(
    weights,
    model=model,
    preprocessing=preprocessing.Preprocessing(size=(size, size)),
  )


def params_of(flat: Mapping[str, np.ndarray]) -> dict[str, Any]:
  """Returns the parameters in arrays named 'module/name', unchecked."""
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
    raise weights_lib.WeightsError(
      f'is not a checkpoint: it has {len(flat)} arrays, and {nested[:3]} are'
      f' names of both an array and a module.'
    )
  return big_vision.to_official(to_linen(weights_lib.unflatten(flat)))


def to_linen(params: Mapping[str, Any]) -> dict[str, Any]:
  """Renames modules as Linen does; Linen names pass unchanged.

  Before Linen, unnamed modules of one parent were numbered together
  (`LayerNorm_0`, `MultiHeadDotProductAttention_1`, `LayerNorm_2`); Linen counts
  each class alone. Named modules start in lower case and keep their name.
  Old group-norm arrays [1, 1, 1, C] become [C].
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
