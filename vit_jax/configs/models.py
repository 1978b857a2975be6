"""The released Vision Transformers, as tables of sizes."""

from collections.abc import Callable, Mapping
from typing import Any

import ml_collections

# What configures a model: `MODEL_CONFIGS[name]`, or the same as a dict.
ModelConfig = Mapping[str, Any] | ml_collections.ConfigDict

_SIZES = {  # width, depth, mlp, heads; Table 1 and arXiv:2106.10270, Table 2.
  'Ti': (192, 12, 768, 3),
  'S': (384, 12, 1536, 6),
  'B': (768, 12, 3072, 12),
  'L': (1024, 24, 4096, 16),
  'H': (1280, 32, 5120, 16),
  'testing': (10, 1, 10, 2),
}

_VARIANTS = {  # size, patch, dropout, classifier; as released.
  'testing': ('testing', 16, 0.1, 'token'),
  'testing-unpooled': ('testing', 16, 0.1, 'unpooled'),
  'ViT-Ti_16': ('Ti', 16, 0.0, 'token'),
  'ViT-S_16': ('S', 16, 0.0, 'token'),
  'ViT-S_32': ('S', 32, 0.0, 'token'),
  'ViT-B_8': ('B', 8, 0.0, 'token'),
  'ViT-B_16': ('B', 16, 0.0, 'token'),
  'ViT-B_32': ('B', 32, 0.0, 'token'),
  'ViT-L_16': ('L', 16, 0.1, 'token'),
  'ViT-L_32': ('L', 32, 0.0, 'token'),
  'ViT-H_14': ('H', 14, 0.1, 'token'),
  'ViT-S_16-gap-norep': ('S', 16, 0.0, 'gap'),
  'ViT-S_32-gap-norep': ('S', 32, 0.0, 'gap'),
  'ViT-B_16-gap-norep': ('B', 16, 0.0, 'gap'),
  'ViT-B_32-gap-norep': ('B', 32, 0.0, 'gap'),
}

# Names that are no part of the AugReg release (arXiv:2106.10270).
_NOT_AUGREG = ('testing', 'ViT-L_32', 'ViT-H_14')


def vit_config(
  model_name: str,
  *,
  hidden_size: int,
  num_layers: int,
  mlp_dim: int,
  num_heads: int,
  patch_size: tuple[int, int],
  dropout_rate: float = 0.0,
  classifier: str = 'token',
) -> ml_collections.ConfigDict:
  """Returns a config with the fields that the official code gives a ViT."""
  return ml_collections.ConfigDict(
    {
      'model_name': model_name,
      'patches': {'size': patch_size},
      'hidden_size': hidden_size,
      'transformer': {
        'mlp_dim': mlp_dim,
        'num_heads': num_heads,
        'num_layers': num_layers,
        'attention_dropout_rate': 0.0,
        'dropout_rate': dropout_rate,
      },
      'classifier': classifier,
      'representation_size': ml_collections.config_dict.placeholder(int),
    }
  )


def _released_config(model_name: str) -> ml_collections.ConfigDict:
  size, patch, dropout_rate, classifier = _VARIANTS[model_name]
  hidden_size, num_layers, mlp_dim, num_heads = _SIZES[size]
  return vit_config(
    model_name,
    hidden_size=hidden_size,
    num_layers=num_layers,
    mlp_dim=mlp_dim,
    num_heads=num_heads,
    patch_size=(patch, patch),
    dropout_rate=dropout_rate,
    classifier=classifier,
  )


# Keys are the basenames of the released files, `ViT-B_16.npz` and like.
MODEL_CONFIGS = {name: _released_config(name).lock() for name in _VARIANTS}

# Keys are the first part of an AugReg file name, `B_16-i21k-300ep-...`.
AUGREG_CONFIGS = {
  name.removeprefix('ViT-'): config
  for name, config in MODEL_CONFIGS.items()
  if name not in _NOT_AUGREG
}


def short_name(model_name: str) -> str:
  """Returns the name used on command lines: `ViT-B_16` gives `b16`."""
  name = model_name.removeprefix('ViT-').lower()
  size, _, rest = name.partition('_')
  return (size + rest).replace('-', '_')


def get_model_config(model: str) -> ml_collections.ConfigDict:
  """Returns the config of a released model, unlocked, by either name.

  Args:
    model: `b16` or `ViT-B_16`.

  Raises:
    ValueError: if there is no such model; the message lists those there are.
  """
  for name in _VARIANTS:
    if model in (name, short_name(name)):
      return _released_config(name)
  names = ', '.join(short_name(name) for name in _VARIANTS)
  raise ValueError(f'There is no model {model!r}. Available: {names}.')


def _getter(model_name: str) -> Callable[[], ml_collections.ConfigDict]:
  def get_config() -> ml_collections.ConfigDict:
    return _released_config(model_name)

  get_config.__doc__ = f'Returns the config of {model_name}.'
  return get_config


get_testing_config = _getter('testing')
get_testing_unpooled_config = _getter('testing-unpooled')
get_ti16_config = _getter('ViT-Ti_16')
get_s16_config = _getter('ViT-S_16')
get_s32_config = _getter('ViT-S_32')
get_b8_config = _getter('ViT-B_8')
get_b16_config = _getter('ViT-B_16')
get_b32_config = _getter('ViT-B_32')
get_l16_config = _getter('ViT-L_16')
get_l32_config = _getter('ViT-L_32')
get_h14_config = _getter('ViT-H_14')
get_s16_gap_norep_config = _getter('ViT-S_16-gap-norep')
get_s32_gap_norep_config = _getter('ViT-S_32-gap-norep')
get_b16_gap_norep_config = _getter('ViT-B_16-gap-norep')
get_b32_gap_norep_config = _getter('ViT-B_32-gap-norep')
