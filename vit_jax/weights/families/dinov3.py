"""The ViTs of DINOv3 (arXiv:2508.10104)."""

from typing import Any

import numpy as np

from vit_jax.weights import record as weights_lib
from vit_jax.weights import torch_layout
from vit_jax.weights.families import dino
from vit_jax.weights.families import record
from vit_jax.weights.families.record import Arrays
from vit_jax.weights.families.record import Family
from vit_jax.weights.families.record import Json

_BLOCK = (
  ('LayerNorm_0', 'norm1'),
  ('MultiHeadDotProductAttention_0/query', 'attention.q_proj'),
  ('MultiHeadDotProductAttention_0/key', 'attention.k_proj'),
  ('MultiHeadDotProductAttention_0/value', 'attention.v_proj'),
  ('MultiHeadDotProductAttention_0/out', 'attention.o_proj'),
  ('LayerNorm_1', 'norm2'),
  ('MlpBlock_0/Dense_0', 'mlp.up_proj'),
  ('MlpBlock_0/Dense_1', 'mlp.down_proj'),
  ('MlpBlock_0/gate', 'mlp.gate_proj'),
)

_BIASES = {'q': 'query_bias', 'k': 'key_bias', 'v': 'value_bias'}
_USUAL = {'query_bias': True, 'key_bias': False, 'value_bias': True}

_SIZES = {
  'hidden_size': 384,
  'num_attention_heads': 6,
  'num_hidden_layers': 12,
}


def _read(config: Json, head: bool) -> dict[str, Any]:
  del head  # There is no class with one.
  for name in ('proj_bias', 'mlp_bias'):
    if not config.get(name, True):
      raise weights_lib.WeightsError(
        f'has {name}=False of DINOv3, which no model here has.'
      )
  config = {**_SIZES, **config}
  block = {
    'layer_scale': config.get('layerscale_value', 1.0),
    'biases': ''.join(
      letter
      for letter, name in _BIASES.items()
      if config.get(name, _USUAL[name])
    ),
  }
  if config.get('use_gated_mlp', False):
    if (act := config.get('hidden_act', 'gelu')) != 'silu':
      raise weights_lib.WeightsError(
        f"has a gated MLP with the activation {act!r}; only 'silu' is known."
      )
    block['activation'], config['hidden_act'] = 'swiglu', 'gelu'
  dropout = config.get('attention_dropout', 0.0)
  model = record.vit(
    {**config, 'attention_probs_dropout_prob': dropout},
    mlp_dim=config.get('intermediate_size', 1536),
    layer_norm_epsilon=config.get('layer_norm_eps', 1e-5),
    block=block,
    patch_size=config.get('patch_size', 16),
    num_registers=config.get('num_register_tokens', 0),
    classifier='token',
    rotary_base=float(config.get('rope_theta', 100.0)),
  )
  model['transformer']['add_position_embedding'] = False
  return model


def _write(model: Json) -> dict[str, Any]:
  encoder = model['transformer']
  block = encoder.get('block', {})
  is_gated = block.get('activation') == 'swiglu'
  config = record.vit_json(model)
  del config['hidden_dropout_prob']
  if is_gated:
    config['hidden_act'] = 'silu'
  biases = block.get('biases', 'qkv')
  return {
    **config,
    'attention_dropout': config.pop('attention_probs_dropout_prob'),
    'intermediate_size': encoder['mlp_dim'],
    'use_gated_mlp': is_gated,
    'layerscale_value': block.get('layer_scale') or 1.0,
    'num_register_tokens': model.get('num_registers', 0),
    'rope_theta': model['rotary_base'],
    **{name: letter in biases for letter, name in _BIASES.items()},
  }


def _names(model: Json, head: bool) -> dict[str, str]:
  del head
  return {
    'cls': 'embeddings.cls_token',
    'reg': 'embeddings.register_tokens',
    **torch_layout.array_names(
      [
        ('embedding', 'embeddings.patch_embeddings'),
        ('Transformer/encoder_norm', 'norm'),
        *record.blocks(model, 'layer.{}', _BLOCK),
      ]
    ),
    **dict(record.blocks(model, 'layer.{}', dino.LAYER_SCALES)),
  }


def _split(arrays: Arrays) -> dict[str, np.ndarray]:
  return {
    name.removeprefix('model.'): x
    for name, x in dino.without_empty(arrays).items()
  }


DINOV3 = Family(
  read=_read,
  write=_write,
  names=_names,
  architectures=('DINOv3ViTModel', None),
  split=_split,
  join=lambda arrays: dino.with_unused(arrays, mask_axes=3),
  ignored=('embeddings.mask_token',),
)
