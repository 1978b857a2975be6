"""ViT of transformers, and the families with its names.

DeiT (arXiv:2012.12877) adds a distillation token and may have a head for it. The
decoder of a masked autoencoder (arXiv:2111.06377) is not read. MSN
(arXiv:2204.07141) is a ViT, I-JEPA (arXiv:2301.08243) one without a class token.
"""

from collections.abc import Callable
import functools
import math
import re
from typing import Any

import numpy as np

from vit_jax.weights import infer
from vit_jax.weights import record as weights_lib
from vit_jax.weights import torch_layout
from vit_jax.weights.families import record
from vit_jax.weights.families.record import Arrays
from vit_jax.weights.families.record import Family
from vit_jax.weights.families.record import Json

_BLOCK = (
  ('LayerNorm_0', 'layernorm_before'),
  ('MultiHeadDotProductAttention_0/query', 'attention.attention.query'),
  ('MultiHeadDotProductAttention_0/key', 'attention.attention.key'),
  ('MultiHeadDotProductAttention_0/value', 'attention.attention.value'),
  ('MultiHeadDotProductAttention_0/out', 'attention.output.dense'),
  ('LayerNorm_1', 'layernorm_after'),
  ('MlpBlock_0/Dense_0', 'intermediate.dense'),
  ('MlpBlock_0/Dense_1', 'output.dense'),
)

_ALIASES = (  # Modules of transformers 5; its files keep the old names.
  (r'\blayers\.(\d+)\.', r'encoder.layer.\1.'),
  (r'attention\.q_proj', 'attention.attention.query'),
  (r'attention\.k_proj', 'attention.attention.key'),
  (r'attention\.v_proj', 'attention.attention.value'),
  (r'attention\.o_proj', 'attention.output.dense'),
  (r'mlp\.fc1', 'intermediate.dense'),
  (r'mlp\.fc2', 'output.dense'),
)

_WITH_TEACHER = 'DeiTForImageClassificationWithTeacher'


def _read(
  config: Json, classifier: str = 'token', **fields: Any
) -> dict[str, Any]:
  return record.vit(
    config,
    mlp_dim=config.get('intermediate_size', 3072),
    layer_norm_epsilon=config.get('layer_norm_eps', 1e-12),
    block={'biases': 'qkv' if config.get('qkv_bias', True) else ''},
    patch_size=config.get('patch_size', 16),
    classifier=classifier,
    **fields,
  )


def _write(model: Json) -> dict[str, Any]:
  encoder = model['transformer']
  return {
    **record.vit_json(model),
    'intermediate_size': encoder['mlp_dim'],
    'qkv_bias': encoder.get('block', {}).get('biases', 'qkv') == 'qkv',
  }


def _pooler(config: Json, head: bool) -> int | None:
  """Returns the width of the pooler, our `pre_logits`; a head does not read it."""
  activation = config.get('pooler_act', 'tanh')
  if head or activation == 'tanh':
    return None if head else config.get('pooler_output_size')
  raise weights_lib.WeightsError(
    f'has a pooler with the activation {activation!r}; only tanh is known.'
  )


def _write_pooler(model: Json) -> dict[str, Any]:
  size = model.get('representation_size')
  return {'pooler_act': 'tanh', 'pooler_output_size': size}


def _read_vit(config: Json, head: bool) -> dict[str, Any]:
  return _read(config, representation_size=_pooler(config, head))


def _write_vit(model: Json) -> dict[str, Any]:
  return {**_write(model), **_write_pooler(model)}


def _read_deit(config: Json, head: bool) -> dict[str, Any]:
  has_teacher = _WITH_TEACHER in (config.get('architectures') or ())
  return _read(
    config,
    representation_size=_pooler(config, head),
    distillation='head' if has_teacher else 'token',
    posemb_resize='bicubic',
  )


def _write_deit(model: Json) -> dict[str, Any]:
  config = _write_vit(model)
  if model.get('distillation') == 'head':
    config['architectures'] = [_WITH_TEACHER]
  return config


def _read_mae(config: Json, head: bool) -> dict[str, Any]:
  del head  # There is none.
  return _read(config, posemb_resize='bicubic')


def _read_msn(config: Json, head: bool) -> dict[str, Any]:
  del head
  return _read({'layer_norm_eps': 1e-6, **config}, posemb_resize='bicubic')


def _read_ijepa(config: Json, head: bool) -> dict[str, Any]:
  del head
  return _read(config, classifier='gap', posemb_resize='bicubic')


def _write_mae(model: Json) -> dict[str, Any]:
  return {**_write(model), 'mask_ratio': 0.0}  # The encoder sees all patches.


def _complete(config: Json, arrays: Arrays, prefix: str) -> dict[str, Any]:
  """Adds what a `config.json` leaves out; no other family is read without one."""
  start = f'{prefix}.' if 'classifier.weight' in arrays else ''
  block = f'{start}encoder.layer.0.'
  needed = (
    f'{start}embeddings.patch_embeddings.projection.weight',
    f'{start}embeddings.position_embeddings',
    f'{block}intermediate.dense.weight',
  )
  if not all(name in arrays for name in needed):
    return dict(config)  # Of another architecture, which is refused later.
  kernel, positions, dense = (arrays[name].shape for name in needed)
  width, channels, *patch = kernel
  told = {
    'hidden_size': width,
    'num_channels': channels,
    'patch_size': patch,
    'num_hidden_layers': infer.count(arrays, r'.*\d\.output\.dense\.weight'),
    'intermediate_size': dense[0],
    'qkv_bias': f'{block}attention.attention.query.bias' in arrays,
  }
  if 'num_attention_heads' not in config:
    told['num_attention_heads'] = infer.known_num_heads(
      width, has_config=bool(config)
    )
  extra = infer.count(arrays, r'.*_token')
  side = math.isqrt(max(positions[1] - extra, 0))
  told['image_size'] = [side * n for n in patch]
  pooler = arrays.get('pooler.dense.bias')
  completed = {**told, **config, 'pooler_output_size': None}
  if pooler is not None:
    completed['pooler_output_size'] = len(pooler)
  return completed


def _complete_deit(config: Json, arrays: Arrays) -> dict[str, Any]:
  has_teacher = 'distillation_classifier.weight' in arrays
  completed = _complete(config, arrays, 'deit')
  return {**completed, 'architectures': [_WITH_TEACHER] if has_teacher else []}


def _names(prefix: str) -> Callable[[Json, bool], dict[str, str]]:
  def names(model: Json, head: bool) -> dict[str, str]:
    theirs = {
      'cls': 'embeddings.cls_token',
      'dist': 'embeddings.distillation_token',
      record.POSITIONS: 'embeddings.position_embeddings',
      **torch_layout.array_names(
        [
          ('embedding', 'embeddings.patch_embeddings.projection'),
          ('Transformer/encoder_norm', 'layernorm'),
          ('pre_logits', 'pooler.dense'),
          *record.blocks(model, 'encoder.layer.{}', _BLOCK),
        ]
      ),
    }
    if head:
      theirs = {k: f'{prefix}.{v}' for k, v in theirs.items()}
    return theirs | torch_layout.array_names(
      [('head', 'classifier'), ('head_dist', 'distillation_classifier')]
    )

  return names


def _split(arrays: Arrays, prefix: str) -> dict[str, np.ndarray]:
  """Gives arrays their old names, and those of the encoder alone no prefix.

  Leaves out a decoder, and a pooler that no head reads.
  """
  renamed = {_old_name(name): x for name, x in arrays.items()}
  if 'classifier.weight' in renamed:
    return {k: x for k, x in renamed.items() if '.pooler.' not in k}
  return {
    name.removeprefix(f'{prefix}.'): x
    for name, x in renamed.items()
    if not name.startswith('decoder.')
  }


def _split_msn(arrays: Arrays) -> dict[str, np.ndarray]:
  """Adds the prefix that transformers 5 leaves out of blocks below a head."""
  arrays = _split(arrays, 'vit')
  if 'classifier.weight' not in arrays:
    return arrays
  return {re.sub(r'^encoder\.', 'vit.encoder.', k): arrays[k] for k in arrays}


def _old_name(name: str) -> str:
  for pattern, replacement in _ALIASES:
    name = re.sub(pattern, replacement, name)
  return re.sub(r'^cls_classifier\.', 'classifier.', name)


def _join_deit(arrays: Arrays) -> dict[str, np.ndarray]:
  if 'distillation_classifier.weight' not in arrays:
    return dict(arrays)
  return {re.sub('^classifier', 'cls_classifier', k): arrays[k] for k in arrays}


_IGNORED = ('embeddings.mask_token',)  # Only for pre-training.

VIT = Family(
  read=_read_vit,
  write=_write_vit,
  names=_names('vit'),
  architectures=('ViTModel', 'ViTForImageClassification'),
  complete=functools.partial(_complete, prefix='vit'),
  split=functools.partial(_split, prefix='vit'),
  ignored=_IGNORED,
)

DEIT = Family(
  read=_read_deit,
  write=_write_deit,
  names=_names('deit'),
  architectures=('DeiTModel', 'DeiTForImageClassification'),
  complete=_complete_deit,
  split=functools.partial(_split, prefix='deit'),
  join=_join_deit,
  ignored=_IGNORED,
)

VIT_MAE = Family(
  read=_read_mae,
  write=_write_mae,
  names=_names('vit'),
  architectures=('ViTMAEModel', None),
  complete=functools.partial(_complete, prefix='vit'),
  split=functools.partial(_split, prefix='vit'),
  ignored=_IGNORED,
)

VIT_MSN = Family(  # Written as the ViT that it is.
  read=_read_msn,
  write=_write,
  names=_names('vit'),
  architectures=(None, None),
  complete=functools.partial(_complete, prefix='vit'),
  split=_split_msn,
  ignored=_IGNORED,
)

IJEPA = Family(
  read=_read_ijepa,
  write=_write,
  names=_names('ijepa'),
  architectures=('IJepaModel', 'IJepaForImageClassification'),
  complete=functools.partial(_complete, prefix='ijepa'),
  split=functools.partial(_split, prefix='ijepa'),
  ignored=_IGNORED,
)
