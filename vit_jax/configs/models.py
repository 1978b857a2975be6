"""Configs of the released models, made from tables of sizes."""

from collections.abc import Mapping
import functools
import re
from typing import Any

import ml_collections

# The config of a model: `MODEL_CONFIGS[name]`, or the same as a dict.
ModelConfig = Mapping[str, Any] | ml_collections.ConfigDict

_SIZES = {  # width, depth, mlp, heads; Table 1 and arXiv:2106.10270, Table 2.
  'Ti': (192, 12, 768, 3),
  'S': (384, 12, 1536, 6),
  'B': (768, 12, 3072, 12),
  'L': (1024, 24, 4096, 16),
  'H': (1280, 32, 5120, 16),
  'Mini': (192, 9, 768, 3),  # Ours, see checkpoints/README.md.
  'testing': (10, 1, 10, 2),
}

_VARIANTS = {  # size, patch, dropout, classifier; as released.
  'testing': ('testing', 16, 0.1, 'token'),
  'testing-unpooled': ('testing', 16, 0.1, 'unpooled'),
  'ViT-Mini_8': ('Mini', 8, 0.0, 'gap'),
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

_HYBRIDS = {  # size, patch in cells, dropout, units of the ResNet's stages.
  'R+ViT-Ti_16': ('Ti', 8, 0.0, ()),
  'R26+ViT-S_32': ('S', 1, 0.0, (2, 2, 2, 2)),
  'R26+ViT-B_32': ('B', 1, 0.0, (2, 2, 2, 2)),
  # Not the (3, 4, 6, 3) of ResNet-50: three stages reduce 16-fold.
  'R50+ViT-B_16': ('B', 1, 0.1, (3, 4, 9)),
  'R50+ViT-L_32': ('L', 1, 0.1, (3, 4, 6, 3)),
}

_MIXERS = {  # patch, width, blocks, token mlp, channel mlp; 2105.01601, Table 1.
  'Mixer-B_16': (16, 768, 12, 384, 3072),
  'Mixer-B_32': (32, 768, 12, 384, 3072),
  'Mixer-L_16': (16, 1024, 24, 512, 4096),
}

_LITS = {  # image tower, widths of the heads, text tower; arXiv:2111.07991.
  'LiT-B16B': ('ViT-B_16', (768, 768), 'base'),
  'LiT-B16B_2': ('ViT-B_16', (None, 768), 'base'),
  'LiT-L16L': ('ViT-L_16', (None, 1024), 'large'),
  'LiT-L16S': ('ViT-L_16', (None, 1024), 'S'),
  'LiT-L16Ti': ('ViT-L_16', (None, 1024), 'Ti'),
}

# The AugReg weights are fine-tuned without dropout, whatever the tables above say
# about their size (official configs/augreg.py).
AUGREG_DROPOUT = 0.0

# Models that the AugReg release (arXiv:2106.10270) does not have.
_NOT_AUGREG = ('testing', 'ViT-Mini_8', 'ViT-L_32', 'ViT-H_14', 'R50+ViT-B_16')


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


def _vit(model_name: str) -> ml_collections.ConfigDict:
  variants = _VARIANTS | {k: (*v[:3], 'token') for k, v in _HYBRIDS.items()}
  size, patch, dropout_rate, classifier = variants[model_name]
  hidden_size, num_layers, mlp_dim, num_heads = _SIZES[size]
  config = vit_config(
    model_name,
    hidden_size=hidden_size,
    num_layers=num_layers,
    mlp_dim=mlp_dim,
    num_heads=num_heads,
    patch_size=(patch, patch),
    dropout_rate=dropout_rate,
    classifier=classifier,
  )
  if model_name in _HYBRIDS:
    units = _HYBRIDS[model_name][3]
    config.resnet = {'num_layers': units, 'width_factor': 1}
  return config


def _mixer(model_name: str) -> ml_collections.ConfigDict:
  patch, width, blocks, tokens_mlp, channels_mlp = _MIXERS[model_name]
  return ml_collections.ConfigDict(
    {
      'model_name': model_name,
      'patches': {'size': (patch, patch)},
      'hidden_dim': width,
      'num_blocks': blocks,
      'tokens_mlp_dim': tokens_mlp,
      'channels_mlp_dim': channels_mlp,
    }
  )


def _lit(model_name: str) -> ml_collections.ConfigDict:
  image, out_dim, text_size = _LITS[model_name]
  text: dict[str, Any]
  if text_size in _SIZES:
    width, num_layers, mlp_dim, num_heads = _SIZES[text_size]
    text_model, tokenizer_name = 'text_transformer', 'sentencepiece'
    text = {
      'width': width,
      'num_layers': num_layers,
      'mlp_dim': mlp_dim,
      'num_heads': num_heads,
      'vocab_size': 16_000,
    }
  else:
    text_model, tokenizer_name = 'bert', 'bert'
    text = {'config': text_size}
  return ml_collections.ConfigDict(
    {
      'model_name': model_name,
      'image': _vit(image),
      'text_model': text_model,
      'text': text,
      'out_dim': out_dim,
      'pp': {'tokenizer_name': tokenizer_name, 'size': 224, 'max_len': 16},
    }
  )


_MAKERS = (
  dict.fromkeys((*_VARIANTS, *_HYBRIDS), _vit)
  | dict.fromkeys(_MIXERS, _mixer)
  | dict.fromkeys(_LITS, _lit)
)


def _released_config(model_name: str) -> ml_collections.ConfigDict:
  return _MAKERS[model_name](model_name)


# Keys are the names of the released files without `.npz`.
MODEL_CONFIGS = {name: _released_config(name).lock() for name in _MAKERS}

# Keys are the first parts of AugReg file names, such as `B_16-i21k-300ep-...`.
AUGREG_CONFIGS = {
  name.replace('ViT-', '').replace('+', '_'): MODEL_CONFIGS[name]
  for name in (*_VARIANTS, *_HYBRIDS)
  if name not in _NOT_AUGREG
}


def short_name(model_name: str) -> str:
  """Returns the name used on command lines.

  `ViT-B_16` gives `b16`, `R26+ViT-S_32` `r26_s32`, `Mixer-B_16` `mixer_b16`.
  """
  name = model_name.replace('ViT-', '').lower()
  name = re.sub(r'_(?=(8|14|16|32)\b)', '', name)
  return re.sub(r'[+-]', '_', name)


def get_model_config(model: str) -> ml_collections.ConfigDict:
  """Returns the unlocked config of a released model, `b16` or `ViT-B_16`.

  Raises:
    ValueError: if there is no such model; the message lists all models.
  """
  for name in _MAKERS:
    if model in (name, short_name(name)):
      return _released_config(name)
  names = ', '.join(short_name(name) for name in _MAKERS)
  raise ValueError(f'There is no model {model!r}. Available: {names}.')


def __getattr__(name: str) -> Any:
  """Makes the functions of the official module, such as `get_b16_config`."""
  for model in _MAKERS:
    if name == f'get_{short_name(model)}_config':
      return functools.partial(_released_config, model)
  raise AttributeError(f'{__name__} has no {name!r}.', name=name)
