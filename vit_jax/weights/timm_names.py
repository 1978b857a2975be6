"""How timm names the modules of its ViTs, hybrids and Mixers, as tables."""

from collections.abc import Collection, Mapping
import re
from typing import Any

import numpy as np

from vit_jax.weights import infer
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

_UNIT = tuple(
  pair
  for i in (1, 2, 3)
  for pair in ((f'conv{i}', f'conv{i}'), (f'gn{i}', f'norm{i}'))
)
_PROJECTION = (('conv_proj', 'downsample.conv'), ('gn_proj', 'downsample.norm'))


def is_names(names: Collection[str]) -> bool:
  """Whether these are names of the arrays of a ViT or Mixer of timm."""
  return 'patch_embed.proj.weight' in names or 'stem.proj.weight' in names


def mixer_names(depth: int, head: bool) -> dict[str, str]:
  """Returns {official name: timm's} of a Mixer's arrays."""
  modules = [
    ('stem', 'stem.proj'),
    ('pre_head_layer_norm', 'norm'),
    *torch_layout.blocks(depth, 'MixerBlock_{}', 'blocks.{}', _MIXER_BLOCK),
  ]
  if head:
    modules.append(('head', 'head'))
  return torch_layout.array_names(modules)


def vit_names(
  depth: int,
  *,
  head: bool,
  class_token: bool,
  fc_norm: bool,
  stages: tuple[int, ...] | None,
) -> dict[str, str]:
  """Returns {official name: timm's} of a ViT's arrays.

  The query, key and value that timm keeps in one array go by `attn.q` and so
  on; `split_qkv` and `join_qkv` make them of it and it of them.

  Args:
    depth: number of blocks.
    head: whether there is one.
    class_token: likewise.
    fc_norm: whether the last LayerNorm comes after the pooling.
    stages: units of each stage of a hybrid's ResNet; None for a plain ViT.
  """
  norm = ('fc_norm', 'fc_norm')
  modules = [
    ('embedding', 'patch_embed.proj'),
    norm if fc_norm else ('Transformer/encoder_norm', 'norm'),
    *torch_layout.blocks(
      depth, 'Transformer/encoderblock_{}', 'blocks.{}', _BLOCK
    ),
  ]
  if head:
    modules.append(('head', 'head'))
  if stages is not None:
    modules += _resnet_modules(stages)
  names = torch_layout.array_names(modules)
  names['Transformer/posembed_input/pos_embedding'] = 'pos_embed'
  if class_token:
    names['cls'] = 'cls_token'
  return names


def _resnet_modules(stages: tuple[int, ...]) -> list[tuple[str, str]]:
  backbone = 'patch_embed.backbone'
  stem = f'{backbone}.stem' if stages else backbone
  modules = [('conv_root', f'{stem}.conv'), ('gn_root', f'{stem}.norm')]
  for i, units in enumerate(stages):
    for j in range(units):
      # The first unit of a stage always changes the width.
      for ours, theirs in (*_UNIT, *(_PROJECTION if j == 0 else ())):
        modules.append(
          (
            f'block{i + 1}/unit{j + 1}/{ours}',
            f'{backbone}.stages.{i}.blocks.{j}.{theirs}',
          )
        )
  return modules


def resnet_stages(arrays: Mapping[str, Any]) -> tuple[int, ...] | None:
  """Returns the units of each stage of a hybrid's ResNet; None without one."""
  if not any(name.startswith('patch_embed.backbone.') for name in arrays):
    return None
  stage = r'patch_embed\.backbone\.stages\.{}\.blocks\.{}\.conv1\.weight'
  count = infer.count(arrays, stage.format(r'\d+', 0))
  return tuple(
    infer.count(arrays, stage.format(i, r'\d+')) for i in range(count)
  )


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
