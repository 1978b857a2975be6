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
  ('MlpBlock_0/gate', 'mlp.gate'),
)

_SCALES = (
  ('LayerScale_0/scale', 'ls1.gamma'),
  ('LayerScale_1/scale', 'ls2.gamma'),
)

_ATTENTION_POOLING = (
  ('MultiHeadDotProductAttention_0/query', 'q'),
  ('MultiHeadDotProductAttention_0/key', 'k'),
  ('MultiHeadDotProductAttention_0/value', 'v'),
  ('MultiHeadDotProductAttention_0/out', 'proj'),
  ('LayerNorm_0', 'norm'),
  ('MlpBlock_0/Dense_0', 'mlp.fc1'),
  ('MlpBlock_0/Dense_1', 'mlp.fc2'),
)

# Ends of the names of arrays that only some models have, in all their blocks.
_OPTIONAL = (
  *('attn.q.bias', 'attn.k.bias', 'attn.v.bias', 'ls1.gamma', 'ls2.gamma'),
  *('mlp.gate.weight', 'mlp.gate.bias'),
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

Arrays = Mapping[str, np.ndarray]

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

  Some of timm's arrays hold several of ours; those have other names here, such as
  `attn.q`: see `split` and `join`.

  Args:
    stages: whether the ResNet of a hybrid has stages besides its stem.
  """
  stem = f'{BACKBONE}stem.' if stages else BACKBONE
  block = 'Transformer/encoderblock_{}', 'blocks.{}'
  modules = [
    ('embedding', 'patch_embed.proj'),
    ('conv_root', f'{stem}conv'),
    ('gn_root', f'{stem}norm'),
    ('Transformer/first_norm', 'norm_pre'),
    ('Transformer/encoder_norm', 'norm'),
    ('fc_norm', 'fc_norm'),
    ('head', 'head'),
    ('head_dist', 'head_dist'),
    *((f'MAPHead_0/{a}', f'attn_pool.{b}') for a, b in _ATTENTION_POOLING),
    *torch_layout.blocks(*block, _BLOCK),
  ]
  for i, j in itertools.product(range(_MAX_STAGES), range(_MAX_UNITS)):
    unit, theirs = (
      f'block{i + 1}/unit{j + 1}',
      f'{BACKBONE}stages.{i}.blocks.{j}',
    )
    modules += [(f'{unit}/{a}', f'{theirs}.{b}') for a, b in _UNIT]
  return {
    'cls': 'cls_token',
    'dist': 'dist_token',
    'reg': 'reg_token',
    'Transformer/posembed_input/pos_embedding': 'pos_embed',
    'MAPHead_0/probe': 'attn_pool.latent',
    **torch_layout.array_names(modules),
    **dict(torch_layout.blocks(*block, _SCALES)),
  }


def names_in(arrays: Arrays) -> dict[str, str]:
  """Returns `vit_names` for arrays after `split`, without parts they all lack."""
  absent = [
    end for end in _OPTIONAL if not any(name.endswith(end) for name in arrays)
  ]
  if 'norm_pre.weight' in arrays:
    absent.append('patch_embed.proj.bias')
  names = vit_names(stages=f'{BACKBONE}stem.conv.weight' in arrays)
  return {
    ours: name
    for ours, name in names.items()
    if not name.endswith(tuple(absent))
  }


def is_eva(arrays: Arrays) -> bool:
  """Whether these are arrays of timm's `Eva`."""
  return any(
    re.search(r'\.(gamma_1|attn\.q_bias|mlp\.fc1_g\.)', name) for name in arrays
  )


# (a name in timm, its name here), as regular expressions.
_RENAMED = (
  (r'\.gamma_([12])$', r'.ls\1.gamma'),
  (r'\.attn\.([qkv])_bias$', r'.attn.\1.bias'),
  (r'\.attn\.([qkv])_proj\.', r'.attn.\1.'),
  (r'\.mlp\.fc1_g\.', '.mlp.gate.'),
  (r'\.mlp\.fc1_x\.', '.mlp.fc1.'),
)

# (part of the name of an array of timm, that of its parts here)
_PACKED = (
  ('.attn.qkv.', ('.attn.q.', '.attn.k.', '.attn.v.')),
  ('attn_pool.kv.', ('attn_pool.k.', 'attn_pool.v.')),
  ('.mlp.fc1.', ('.mlp.gate.', '.mlp.fc1.')),
)


def split(arrays: Arrays) -> dict[str, np.ndarray]:
  """Splits packed arrays, so that each is one of ours; parts are views."""
  parts: dict[str, np.ndarray] = {}
  for name, x in arrays.items():
    for packed, ends in _PACKED:
      is_packed = packed != '.mlp.fc1.' or _is_gated(arrays, name)
      if packed in name and is_packed and len(x) % len(ends) == 0:
        split_names = [name.replace(packed, end) for end in ends]
        parts |= zip(split_names, np.split(x, len(ends)), strict=True)
        break
    else:
      for pattern, ours in _RENAMED:
        name = re.sub(pattern, ours, name)
      parts[name] = x
  return parts


def _is_gated(arrays: Arrays, name: str) -> bool:
  """Whether an `mlp.fc1` holds gate and value."""
  block = name.rpartition('.fc1.')[0]
  first, second = (arrays.get(f'{block}.{fc}.weight') for fc in ('fc1', 'fc2'))
  if first is None or second is None or first.ndim != 2 or second.ndim != 2:
    return False
  return first.shape[0] == 2 * second.shape[1]


def join(arrays: Arrays, *, eva: bool = False) -> dict[str, np.ndarray]:
  """Undoes `split`, for an `Eva` of timm or for its other models."""
  if eva:
    arrays = {_eva_name(name, arrays): x for name, x in arrays.items()}
  joined = dict(arrays)
  for packed, ends in _PACKED:
    for name in [name for name in arrays if ends[0] in name]:
      parts = [joined.pop(name.replace(ends[0], end)) for end in ends]
      joined[name.replace(ends[0], packed)] = np.concatenate(parts)
  return joined


def _eva_name(name: str, arrays: Arrays) -> str:
  name = re.sub(r'\.ls([12])\.gamma$', r'.gamma_\1', name)
  name = re.sub(r'\.attn\.([qv])\.bias$', r'.attn.\1_bias', name)
  if name.replace('.fc1.', '.gate.') in arrays:
    name = name.replace('.mlp.fc1.', '.mlp.fc1_x.')
  return name.replace('.mlp.gate.', '.mlp.fc1_g.')
