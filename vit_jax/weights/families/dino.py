"""DINOv2 (arXiv:2304.07193), with and without registers (arXiv:2309.16588)."""

import re
from typing import Any

import numpy as np

from vit_jax.weights import torch_layout
from vit_jax.weights.families import record
from vit_jax.weights.families.record import Arrays
from vit_jax.weights.families.record import Family
from vit_jax.weights.families.record import Json

_BLOCK = (
  ('LayerNorm_0', 'norm1'),
  ('MultiHeadDotProductAttention_0/query', 'attention.attention.query'),
  ('MultiHeadDotProductAttention_0/key', 'attention.attention.key'),
  ('MultiHeadDotProductAttention_0/value', 'attention.attention.value'),
  ('MultiHeadDotProductAttention_0/out', 'attention.output.dense'),
  ('LayerNorm_1', 'norm2'),
  ('MlpBlock_0/Dense_0', 'mlp.fc1'),
  ('MlpBlock_0/Dense_1', 'mlp.fc2'),
  ('MlpBlock_0/gate', 'mlp.gate'),
)

LAYER_SCALES = (
  ('LayerScale_0/scale', 'layer_scale1.lambda1'),
  ('LayerScale_1/scale', 'layer_scale2.lambda1'),
)

_SWIGLU = re.compile(r'(.*\.mlp\.)weights_(in|out)\.(weight|bias)')


def _read(config: Json, head: bool) -> dict[str, Any]:
  return _read_resized(config, head, 'bicubic')


def _read_registers(config: Json, head: bool) -> dict[str, Any]:
  registers = config.get('num_register_tokens', 4)
  config = {**config, 'num_register_tokens': registers}
  return _read_resized(config, head, 'bicubic_antialias')


def _read_resized(config: Json, head: bool, resize: str) -> dict[str, Any]:
  width = config.get('hidden_size', 768)
  mlp_dim = width * config.get('mlp_ratio', 4)
  gated: dict[str, Any] = {}
  if config.get('use_swiglu_ffn', False):  # Then `hidden_act` has no effect.
    gated = {'activation': 'swiglu'}
    mlp_dim = (int(mlp_dim * 2 / 3) + 7) // 8 * 8
  return record.vit(
    config,
    mlp_dim=mlp_dim,
    layer_norm_epsilon=config.get('layer_norm_eps', 1e-6),
    block={
      **gated,
      'layer_scale': config.get('layerscale_value', 1.0),
      'biases': 'qkv' if config.get('qkv_bias', True) else '',
    },
    patch_size=config.get('patch_size', 14),
    num_registers=config.get('num_register_tokens', 0),
    classifier='token_mean' if head else 'token',
    posemb_resize=resize,
  )


def _write(model: Json) -> dict[str, Any]:
  encoder, width = model['transformer'], model['hidden_size']
  block = encoder.get('block', {})
  is_gated = block.get('activation') == 'swiglu'
  mlp_dim = encoder['mlp_dim'] * 3 // 2 if is_gated else encoder['mlp_dim']
  return {
    **record.vit_json(model),
    'mlp_ratio': round(mlp_dim / width),
    'use_swiglu_ffn': is_gated,
    'layerscale_value': block.get('layer_scale') or 1.0,
    'qkv_bias': block.get('biases', 'qkv') == 'qkv',
    'use_mask_token': False,
  }


def _write_registers(model: Json) -> dict[str, Any]:
  return {
    **_write(model),
    'num_register_tokens': model.get('num_registers', 0),
  }


def _names(prefix: str) -> Any:
  def names(model: Json, head: bool) -> dict[str, str]:
    theirs = {
      'cls': 'embeddings.cls_token',
      'reg': 'embeddings.register_tokens',
      record.POSITIONS: 'embeddings.position_embeddings',
      **torch_layout.array_names(
        [
          ('embedding', 'embeddings.patch_embeddings.projection'),
          ('Transformer/encoder_norm', 'layernorm'),
          *record.blocks(model, 'encoder.layer.{}', _BLOCK),
        ]
      ),
      **dict(record.blocks(model, 'encoder.layer.{}', LAYER_SCALES)),
    }
    if head:
      theirs = {k: f'{prefix}.{v}' for k, v in theirs.items()}
    return theirs | torch_layout.array_names([('head', 'classifier')])

  return names


def without_empty(arrays: Arrays) -> dict[str, np.ndarray]:
  """Returns the arrays without those of size 0, such as no register tokens."""
  return {name: x for name, x in arrays.items() if np.size(x)}


def with_unused(arrays: Arrays, mask_axes: int) -> dict[str, np.ndarray]:
  """Adds what transformers misses otherwise: a mask token, no register tokens.

  Args:
    arrays: the state dict of a model with a class token.
    mask_axes: number of axes of the mask token, which only training needs.
  """
  end = 'embeddings.cls_token'
  name, token = next((k, x) for k, x in arrays.items() if k.endswith(end))
  prefix = name.removesuffix('cls_token')
  mask = np.zeros(token.shape[-mask_axes:], token.dtype)
  none = np.zeros((1, 0, token.shape[-1]), token.dtype)
  return {
    f'{prefix}mask_token': mask,
    f'{prefix}register_tokens': none,
    **arrays,
  }


def _split(arrays: Arrays) -> dict[str, np.ndarray]:
  """Splits `weights_in`, gate and value of a SwiGLU in one array."""
  split = {}
  for name, x in without_empty(arrays).items():
    match = _SWIGLU.fullmatch(name)
    if match is None:
      split[name] = x
    elif match[2] == 'out':
      split[f'{match[1]}fc2.{match[3]}'] = x
    else:
      gate, value = np.split(x, 2)
      split[f'{match[1]}gate.{match[3]}'] = gate
      split[f'{match[1]}fc1.{match[3]}'] = value
  return split


def _join(arrays: Arrays) -> dict[str, np.ndarray]:
  joined = {}
  for name, x in arrays.items():
    match = re.fullmatch(r'(.*\.mlp\.)(gate|fc1|fc2)\.(weight|bias)', name)
    if match is None or f'{match[1]}gate.{match[3]}' not in arrays:
      joined[name] = x
    elif match[2] == 'fc2':
      joined[f'{match[1]}weights_out.{match[3]}'] = x
    elif match[2] == 'gate':
      parts = [x, arrays[f'{match[1]}fc1.{match[3]}']]
      joined[f'{match[1]}weights_in.{match[3]}'] = np.concatenate(parts)
  return joined


DINOV2 = Family(
  read=_read,
  write=_write,
  names=_names('dinov2'),
  architectures=('Dinov2Model', 'Dinov2ForImageClassification'),
  split=_split,
  join=_join,
  ignored=('embeddings.mask_token',),
  square=('image_size',),
)

DINOV2_WITH_REGISTERS = Family(
  read=_read_registers,
  write=_write_registers,
  names=_names('dinov2_with_registers'),
  architectures=(
    'Dinov2WithRegistersModel',
    'Dinov2WithRegistersForImageClassification',
  ),
  split=_split,
  join=lambda arrays: with_unused(_join(arrays), mask_axes=2),
  ignored=('embeddings.mask_token',),
  square=('image_size',),
)
