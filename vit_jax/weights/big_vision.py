"""SigLIP as a config; big_vision's places of arrays, and the official ones."""

from collections.abc import Mapping
import math
from typing import Any

from absl import logging
import numpy as np

from vit_jax.configs import spec
from vit_jax.models import blocks
from vit_jax.models import positions
from vit_jax.weights import record as weights_lib

Params = Mapping[str, Any]

# The attention pooling of ViT-G was once a part of the tower.
_POOLING = (
  *('probe', 'MultiHeadDotProductAttention_0', 'LayerNorm_0', 'MlpBlock_0'),
)


_USUAL_SIZE = 224  # Of images, in pixels.
_GEMMA = 256_000  # Words of SigLIP 2's tokeniser; SigLIP's have fewer.


def two_towers(
  image: Params,
  text: Params,
  out_dim: tuple[int | None, int | None],
  max_len: int,
) -> dict[str, Any]:
  """Returns the config of a SigLIP; the size of a vocabulary tells whose it is."""
  is_gemma = text['vocab_size'] == _GEMMA
  return {
    'image': image,
    'text_model': 'text_transformer',
    'text': text,
    'pp': {
      'tokenizer_name': 'gemma' if is_gemma else 'siglip',
      'max_len': max_len,
    },
    'out_dim': out_dim,
    'temperature_init': 10.0,
    'bias_init': -10.0,
  }


def to_official(params: Params) -> dict[str, Any]:
  """Moves big_vision's arrays to official places; official ones stay.

  SigLIP's multilingual models have no head in the text tower. They get one that
  changes nothing, as in transformers.
  """
  params = dict(params)
  if 'img' in params and 'txt' in params:
    params['img'] = _tower(params['img'])
    params['txt'] = _text_tower(params['txt'])
    if 'head' not in params['txt'] and 'MAPHead_0' in params['img']:
      width = params['txt']['Embed_0']['embedding'].shape[1]
      params['txt']['head'] = {
        'kernel': np.eye(width, dtype=np.float32),
        'bias': np.zeros(width, np.float32),
      }
    for name in {'t', 'b'} & params.keys():
      params[name] = np.reshape(params[name], 1)
    return params
  return _tower(params)


def is_needed(model: Mapping[str, Any] | None) -> bool:
  """Whether big_vision has a model that the official code lacks."""
  return model is not None and spec.of(model).pooling == 'map'


def from_official(params: Params) -> dict[str, Any]:
  """Undoes `to_official`."""
  if 'img' in params:
    params = {**params, 'img': _moved_back(params['img'])}
  else:
    params = _moved_back(params)
  return {'params': params}


def _moved_back(tower: Params) -> dict[str, Any]:
  encoder = dict(tower['Transformer'])
  moved = encoder.pop('posembed_input', {})
  return {**tower, 'Transformer': encoder, **moved}


def _tower(params: Params) -> dict[str, Any]:
  params = dict(params)
  if 'pos_embedding' in params.get('Transformer', {}):  # Before 2022.
    params['Transformer'] = encoder = dict(params['Transformer'])
    params['pos_embedding'] = encoder.pop('pos_embedding')
  if 'pos_embedding' not in params or 'embedding' not in params:
    return params
  if 'probe' in params:
    params['MAPHead_0'] = {name: params.pop(name) for name in _POOLING}
  # big_vision's scan=True stacks the blocks.
  encoder = blocks.unstack(params['Transformer'])
  posemb = params.pop('pos_embedding')
  if 'cls' in params:
    posemb = with_class_token(posemb)
  encoder['posembed_input'] = {'pos_embedding': posemb}
  return {**params, 'Transformer': encoder}


def _text_tower(params: Params) -> dict[str, Any]:
  params = dict(params)
  if 'Encoder_0' in params:
    params['Encoder_0'] = encoder = blocks.unstack(params['Encoder_0'])
    # Old files have two of them, and the model added both.
    more = encoder.pop('pos_embedding', None)
    if more is not None:
      params['pos_embedding'] = params['pos_embedding'] + more
  return params


def with_positions(params: Params) -> dict[str, Any]:
  """Adds the position embeddings of a ViT that computes them, `posemb=sincos2d`.

  Raises:
    WeightsError: if the ViT may be another one without position embeddings.
  """
  encoder = params.get('Transformer', {})
  if not encoder or 'embedding' not in params or 'posembed_input' in encoder:
    return dict(params)
  if {'reg', 'dist'} & params.keys():
    raise weights_lib.WeightsError(
      'has no position embeddings, and an .npz does not hold rotations. Convert'
      ' the weights that it was made from.'
    )
  encoder = blocks.unstack(encoder)
  height, width, _, dim = params['embedding']['kernel'].shape
  logging.warning(
    'The weights have no position embeddings: those of big_vision for images of'
    ' %dx%d pixels, sines and cosines, are taken.',
    *(_USUAL_SIZE, _USUAL_SIZE),
  )
  grid = (_USUAL_SIZE // height, _USUAL_SIZE // width)
  posemb = positions.sincos2d(grid, dim)[None]
  if 'cls' in params:
    posemb = with_class_token(posemb)
  moved = {'posembed_input': {'pos_embedding': posemb}}
  return {**params, 'Transformer': {**encoder, **moved}}


def with_class_token(
  posemb: np.ndarray, num_patches: int | None = None
) -> np.ndarray:
  """Adds a zero position embedding for a class token that has none.

  Args:
    posemb: [1, L, D]; it has one already unless L is `num_patches`.
    num_patches: None if unknown; then the grid is square.
  """
  length = posemb.shape[1]
  if length != (num_patches or math.isqrt(length) ** 2):
    return posemb
  return np.pad(posemb, ((0, 0), (1, 0), (0, 0)))
