"""timm's names of the modules of ViTs, hybrids and Mixers, as tables."""

from collections.abc import Collection, Mapping
import functools
import itertools
import re

import numpy as np

from vit_jax.weights import torch_layout

_BLOCK = (
  ('LayerNorm_0', 'norm1'),
  ('MultiHeadDotProductAttention_0/query', 'attn.q'),
  ('MultiHeadDotProductAttention_0/key', 'attn.k'),
  ('MultiHeadDotProductAttention_0/value', 'attn.v'),
  ('MultiHeadDotProductAttention_0/out', 'attn.proj'),
  ('LayerNorm_1', 'norm2'),
  ('MlpBlock_0/Dense_0', 'mlp.fc1'),
  ('MlpBlock_0/Dense_1', 'mlp.fc2'),
)

_MIXER_BLOCK = (
  ('LayerNorm_0', 'norm1'),
  ('token_mixing/Dense_0', 'mlp_tokens.fc1'),
  ('token_mixing/Dense_1', 'mlp_tokens.fc2'),
  ('LayerNorm_1', 'norm2'),
  ('channel_mixing/Dense_0', 'mlp_channels.fc1'),
  ('channel_mixing/Dense_1', 'mlp_channels.fc2'),
)

_UNIT = (
  ('conv1', 'conv1'),
  ('gn1', 'norm1'),
  ('conv2', 'conv2'),
  ('gn2', 'norm2'),
  ('conv3', 'conv3'),
  ('gn3', 'norm3'),
  ('conv_proj', 'downsample.conv'),
  ('gn_proj', 'downsample.norm'),
)
_MAX_STAGES, _MAX_UNITS = 4, 64

BACKBONE = 'patch_embed.backbone.'  # The ResNet of a hybrid.


def is_names(names: Collection[str]) -> bool:
  """Whether these are arrays of a ViT or Mixer of timm."""
  return 'patch_embed.proj.weight' in names or 'stem.proj.weight' in names


MIXER = torch_layout.array_names(
  [
    ('stem', 'stem.proj'),
    ('pre_head_layer_norm', 'norm'),
    ('head', 'head'),
    *torch_layout.blocks('MixerBlock_{}', 'blocks.{}', _MIXER_BLOCK),
  ]
)


@functools.cache
def vit_names(*, stages: bool) -> dict[str, str]:
  """Returns {official name: timm's} of all arrays that a ViT may have.

  timm keeps query, key and value in one array, here called `attn.q` and so on;
  `split_qkv` and `join_qkv` convert them.

  Args:
    stages: whether the ResNet of a hybrid has stages besides its stem.
  """
  stem = f'{BACKBONE}stem.' if stages else BACKBONE
  modules = [
    ('embedding', 'patch_embed.proj'),
    ('conv_root', f'{stem}conv'),
    ('gn_root', f'{stem}norm'),
    ('Transformer/encoder_norm', 'norm'),
    ('fc_norm', 'fc_norm'),
    ('head', 'head'),
    *torch_layout.blocks('Transformer/encoderblock_{}', 'blocks.{}', _BLOCK),
  ]
  for i, j in itertools.product(range(_MAX_STAGES), range(_MAX_UNITS)):
    unit, theirs = (
      f'block{i + 1}/unit{j + 1}',
      f'{BACKBONE}stages.{i}.blocks.{j}',
    )
    modules += [(f'{unit}/{a}', f'{theirs}.{b}') for a, b in _UNIT]
  return {
    'cls': 'cls_token',
    'Transformer/posembed_input/pos_embedding': 'pos_embed',
    **torch_layout.array_names(modules),
  }


def split_qkv(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
  """Returns `attn.q`, `attn.k` and `attn.v` for each `attn.qkv`, as views."""
  split = {}
  for name, x in arrays.items():
    if '.attn.qkv.' in name and len(x) % 3 == 0:
      for letter, part in zip('qkv', np.split(x, 3), strict=True):
        split[name.replace('.qkv.', f'.{letter}.')] = part
    else:
      split[name] = x
  return split


def join_qkv(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
  """Undoes `split_qkv`."""
  joined = {}
  for name, x in arrays.items():
    if match := re.search(r'\.attn\.([qkv])\.', name):
      if match[1] == 'q':
        parts = [arrays[name.replace('.attn.q.', f'.attn.{c}.')] for c in 'qkv']
        joined[name.replace('.attn.q.', '.attn.qkv.')] = np.concatenate(parts)
    else:
      joined[name] = x
  return joined
