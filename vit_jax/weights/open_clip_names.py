"""open_clip's names of the arrays of a CLIP, as a table."""

from collections.abc import Mapping
import re
from typing import Any

import numpy as np

from vit_jax.weights import torch_layout

_BLOCK = (
  ('LayerNorm_0', 'ln_1'),
  ('MultiHeadDotProductAttention_0/query', 'attn.q'),
  ('MultiHeadDotProductAttention_0/key', 'attn.k'),
  ('MultiHeadDotProductAttention_0/value', 'attn.v'),
  ('MultiHeadDotProductAttention_0/out', 'attn.out_proj'),
  ('LayerNorm_1', 'ln_2'),
  ('MlpBlock_0/Dense_0', 'mlp.c_fc'),
  ('MlpBlock_0/Dense_1', 'mlp.c_proj'),
)
_SCALES = (
  ('LayerScale_0/scale', 'ls_1.gamma'),
  ('LayerScale_1/scale', 'ls_2.gamma'),
)

# Axes of length 1 that only our arrays have.
AXES = {
  'positional_embedding': 1,
  'class_embedding': 2,
  'logit_scale': 1,
  'logit_bias': 1,
}

_PACKED = re.compile(r'(.*\.attn\.)in_proj_(weight|bias)')
_PROJECTION = re.compile(r'visual\.proj|text_projection')  # [D, E], no layer.


def names(model: Mapping[str, Any], head: bool) -> dict[str, str]:
  """Returns {our name: open_clip's after `split`} of all arrays."""
  del head
  image, text = 'img/Transformer', 'txt/Encoder_0'
  depths = (
    (image, 'visual.', model['image']['transformer']['num_layers']),
    (text, '', model['text']['num_layers']),
  )
  modules = [
    ('img/embedding', 'visual.conv1'),
    (f'{image}/first_norm', 'visual.ln_pre'),
    (f'{image}/encoder_norm', 'visual.ln_post'),
    ('img/fc_norm', 'visual.ln_post'),
    ('img/projection', 'visual.proj'),
    (f'{text}/encoder_norm', 'ln_final'),
    ('txt/head', 'text_projection'),
  ]
  plain = {
    't': 'logit_scale',
    'b': 'logit_bias',
    'img/cls': 'visual.class_embedding',
    f'{image}/posembed_input/pos_embedding': 'visual.positional_embedding',
    'txt/Embed_0/embedding': 'token_embedding.weight',
    'txt/pos_embedding': 'positional_embedding',
  }
  for ours, theirs, depth in depths:
    for i in range(depth):
      block = (
        f'{ours}/encoderblock_{i}',
        f'{theirs}transformer.resblocks.{i}',
      )
      modules += [(f'{block[0]}/{a}', f'{block[1]}.{b}') for a, b in _BLOCK]
      plain |= {f'{block[0]}/{a}': f'{block[1]}.{b}' for a, b in _SCALES}
  return plain | torch_layout.array_names(modules)


def split(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
  """Splits attention, and makes linear layers of projections."""
  split: dict[str, np.ndarray] = {}
  for name, x in arrays.items():
    name = name.removeprefix(
      'text.'
    )  # Of towers that are modules of their own.
    if match := _PACKED.fullmatch(name):
      for letter, part in zip('qkv', np.split(x, 3), strict=True):
        split[f'{match[1]}{letter}.{match[2]}'] = part
    elif _PROJECTION.fullmatch(name):
      split[f'{name}.weight'] = x.T
    elif name in ('logit_scale', 'logit_bias'):
      split[name] = x.reshape(())
    elif name != 'attn_mask':
      split[name] = x
  return split
