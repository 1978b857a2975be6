"""SigLIP (arXiv:2303.15343) and SigLIP 2 (arXiv:2502.14786) in transformers.

Those of SigLIP 2 with fixed resolutions are published as SigLIP.
"""

import re
from typing import Any

import numpy as np

from vit_jax.weights import big_vision
from vit_jax.weights.families import towers
from vit_jax.weights.families.record import Arrays
from vit_jax.weights.families.record import Family
from vit_jax.weights.families.record import Json

_DEFAULTS: dict[str, Any] = {'act': 'gelu_pytorch_tanh', 'epsilon': 1e-6}
_TEXT_DEFAULTS = {
  'hidden_size': 768,
  'intermediate_size': 3072,
  'num_attention_heads': 12,
}
_POOLING = [
  (f'MAPHead_0/{ours}', f'head.{theirs}')
  for ours, theirs in (
    ('MultiHeadDotProductAttention_0/query', 'attention.q_proj'),
    ('MultiHeadDotProductAttention_0/key', 'attention.k_proj'),
    ('MultiHeadDotProductAttention_0/value', 'attention.v_proj'),
    ('MultiHeadDotProductAttention_0/out', 'attention.out_proj'),
    ('LayerNorm_0', 'layernorm'),
    ('MlpBlock_0/Dense_0', 'mlp.fc1'),
    ('MlpBlock_0/Dense_1', 'mlp.fc2'),
  )
]
_PACKED = re.compile(r'(.*head\.attention\.)in_proj_(weight|bias)')
_PARTS = ('q', 'k', 'v')


def _read(config: Json, head: bool) -> dict[str, Any]:
  del head
  text = {**_TEXT_DEFAULTS, **towers.config_of(config, 'text')}
  width = text.get('projection_size') or text['hidden_size']
  return big_vision.two_towers(
    _read_image(towers.config_of(config, 'vision'), False),
    towers.text(text, vocab_size=32_000, block={}, **_DEFAULTS),
    (None, width),
    text.get('max_position_embeddings', 64),
  )


def _write(model: Json) -> dict[str, Any]:
  text = model['text']
  return {
    'text_config': {
      **towers.text_json(text, model['pp']['max_len']),
      'model_type': 'siglip_text_model',
      'projection_size': model['out_dim'][1],
      'pad_token_id': 1,
      'bos_token_id': None,
      'eos_token_id': 1,
    },
    'vision_config': {
      **_write_image(model['image']),
      'model_type': 'siglip_vision_model',
    },
  }


def _names(model: Json, head: bool) -> dict[str, str]:
  del head
  text = towers.text_names(model['text'], 'text_model.head')
  return {
    't': 'logit_scale',
    'b': 'logit_bias',
    **towers.prefixed(_image_names(model['image'], False), 'img/'),
    **towers.prefixed(text, 'txt/'),
  }


def _image_names(model: Json, head: bool) -> dict[str, str]:
  del head
  probe = {'MAPHead_0/probe': 'head.probe'}
  names = towers.vision_names(model, _POOLING, **probe)
  return towers.prefixed(names, theirs='vision_model.') | {
    'head/kernel': 'classifier.weight',
    'head/bias': 'classifier.bias',
  }


def _read_image(config: Json, head: bool) -> dict[str, Any]:
  has_pooling = config.get('vision_use_head', True) and not head
  return towers.vision(
    config,
    patch_size=16,
    classifier='map' if has_pooling else 'gap',
    **_DEFAULTS,
  )


def _write_image(model: Json) -> dict[str, Any]:
  return {
    **towers.vision_json(model),
    'vision_use_head': model['classifier'] == 'map',
  }


def _read_classifier(config: Json, head: bool) -> dict[str, Any]:
  return _read_image(towers.config_of(config, 'vision'), head)


def _write_classifier(model: Json) -> dict[str, Any]:
  vision = {**_write_image(model), 'model_type': 'siglip_vision_model'}
  return {
    'vision_config': vision,
    'text_config': {'model_type': 'siglip_text_model'},
  }


def _split(arrays: Arrays) -> dict[str, np.ndarray]:
  """Splits the packed projections of the pooling; adds prefixes.

  transformers 5 leaves the prefix out of an image tower alone.
  """
  split = {}
  for name, x in arrays.items():
    if name.startswith(('embeddings.', 'encoder.', 'post_layernorm.', 'head.')):
      name = f'vision_model.{name}'
    if match := _PACKED.fullmatch(name):
      for part, y in zip(_PARTS, np.split(x, 3), strict=True):
        split[f'{match[1]}{part}_proj.{match[2]}'] = y
    else:
      split[name] = x
  return split


def _join(arrays: Arrays) -> dict[str, np.ndarray]:
  """Undoes `_split`, except for the prefix."""
  joined = dict(arrays)
  for kind in ('weight', 'bias'):
    prefix = 'vision_model.head.attention.'
    names = [f'{prefix}{part}_proj.{kind}' for part in _PARTS]
    if names[0] in arrays:
      packed = np.concatenate([joined.pop(name) for name in names])
      joined[f'{prefix}in_proj_{kind}'] = packed
  return joined


def _split_classifier(arrays: Arrays) -> dict[str, np.ndarray]:
  """Leaves out the pooling, which is kept but not used."""
  return {k: x for k, x in arrays.items() if '_model.head.' not in k}


_SHARED: dict[str, Any] = {
  'square': ('image_size', 'patch_size'),
  'axes': {'position_embedding.weight': 1},
  'ignored': ('.position_ids',),  # Of earlier versions.
}

SIGLIP = Family(
  read=_read,
  write=_write,
  names=_names,
  architectures=('SiglipModel', None),
  split=_split,
  join=_join,
  marker='logit_bias',
  tokenizer={
    'siglip': {
      'tokenizer_class': 'SiglipTokenizer',
      'do_lower_case': True,
      'eos_token': '</s>',
      'pad_token': '</s>',
      'unk_token': '<unk>',
    },
    'gemma': {
      'tokenizer_class': 'Siglip2Tokenizer',
      'padding_side': 'right',
      'add_bos_token': False,
      'add_eos_token': True,
      'bos_token': '<bos>',
      'eos_token': '<eos>',
      'pad_token': '<pad>',
      'unk_token': '<unk>',
    },
  },
  **_SHARED,
)

CLASSIFIER = Family(
  read=_read_classifier,
  write=_write_classifier,
  names=_image_names,
  architectures=(None, 'SiglipForImageClassification'),
  split=_split_classifier,
  model_type='siglip',
  marker='classifier.weight',
  **_SHARED,
)

IMAGE = Family(
  read=_read_image,
  write=_write_image,
  names=_image_names,
  architectures=('SiglipVisionModel', None),
  split=_split,
  join=_join,
  **_SHARED,
)
