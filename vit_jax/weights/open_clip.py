"""Reads the CLIPs of open_clip: `open_clip_model.safetensors` and its JSON."""

from collections.abc import Mapping
import pathlib
from typing import Any

from absl import logging

from vit_jax.runtime import files
from vit_jax.weights import array_files
from vit_jax.weights import checks
from vit_jax.weights import extras
from vit_jax.weights import families
from vit_jax.weights import open_clip_names
from vit_jax.weights import pillow_filters
from vit_jax.weights import record as weights_lib
from vit_jax.weights import vocabularies
from vit_jax.weights.families import state_dicts

MODEL, CONFIG = 'open_clip_model.safetensors', 'open_clip_config.json'

# Options of a tower that change its architecture, where they are set.
_REFUSED = (
  *('timm_model_name', 'hf_model_name', 'attentional_pool', 'embed_cls'),
  *('qk_norm', 'scaled_cosine_attn', 'scale_heads', 'scale_attn_inner'),
  *('scale_attn', 'scale_fc'),
)
_POOLS = {'tok': 'token', 'avg': 'token_gap'}
_BERT = 'bert-base-uncased'


def find(path: pathlib.Path) -> pathlib.Path | None:
  """Returns a `.safetensors` of open_clip, or that of a folder without others."""
  if not array_files.is_safetensors(path):
    return None
  if path.is_dir():
    file = path / MODEL
    has_others = any(path.glob('model*.safetensors*'))
    return file if file.is_file() and not has_others else None
  names = array_files.safetensors_names(path)
  is_ours = any(name.startswith('visual.') for name in names)
  return path if is_ours and 'logit_scale' in names else None


def read(path: pathlib.Path) -> weights_lib.Weights:
  """Reads a `.safetensors` with the `open_clip_config.json` beside it."""
  config = files.read_json(path.parent / CONFIG)
  if 'model_cfg' not in config:
    raise weights_lib.WeightsError(
      f'is a CLIP of open_clip. Put beside it its {CONFIG}, which says how many'
      f' heads it has.'
    )
  weights = from_state_dict(
    array_files.read_safetensors(path), config, path.parent.name
  )
  return vocabularies.find(weights, path.parent)


def from_state_dict(
  arrays: Mapping[str, Any],
  config: Mapping[str, Any],
  model_name: str = 'model',
) -> weights_lib.Weights:
  """Returns the weights in a state dict and its `open_clip_config.json`."""
  model, image = config['model_cfg'], config['model_cfg']['vision_cfg']
  _check(model)
  family = families.Family(
    read=_read,
    write=dict,
    names=open_clip_names.names,
    architectures=(None, None),
    split=open_clip_names.split,
    axes=open_clip_names.AXES,
  )
  size = families.pair(image.get('image_size', 224))
  full = {**model, 'vision_config': {'image_size': size}}
  full['init_logit_bias'] = 0.0 if 'logit_bias' in arrays else None
  weights, names = state_dicts.read(family, arrays, full, model_name)
  how = config.get('preprocess_cfg', {})
  weights = extras.described(
    weights,
    {},
    {
      'mean': how.get('mean', families.CLIP_MEAN),
      'std': how.get('std', families.CLIP_STD),
      'interpolation': pillow_filters.interpolation(
        how.get('interpolation', 'bicubic'), model_name
      ),
      'resize_test': _resize_test(how.get('resize_mode', 'shortest'), size),
    },
    loss='sigmoid' if 'b' in weights.params else 'softmax',
  )
  checks.check(weights, names)
  return weights


def _check(model: Mapping[str, Any]) -> None:
  """Raises `WeightsError` at options for which there is no model here."""
  towers = {name: model[name] for name in ('vision_cfg', 'text_cfg')}
  reasons = [
    f'{tower}.{option}={options[option]!r}'
    for tower, options in towers.items()
    for option in _REFUSED
    if options.get(option)
  ]
  reasons += ['multimodal_cfg (a CoCa)'] if 'multimodal_cfg' in model else []
  image, text = towers.values()
  if isinstance(image.get('layers'), list):
    reasons.append(f'vision_cfg.layers={image["layers"]} (a ResNet)')
  if image.get('pool_type', 'tok') not in _POOLS:
    reasons.append(f'vision_cfg.pool_type={image["pool_type"]!r}')
  if text.get('pool_type', 'argmax') not in ('argmax', 'eos', 'last'):
    reasons.append(f'text_cfg.pool_type={text["pool_type"]!r}')
  tokenizer = text.get('hf_tokenizer_name')
  if tokenizer and not tokenizer.endswith(_BERT):
    reasons.append(f'text_cfg.hf_tokenizer_name={tokenizer!r}')
  if reasons:
    raise weights_lib.WeightsError(
      f'is a model of open_clip with {", ".join(reasons)}, which no model here'
      f' has. Its ViTs with texts in byte pairs are read.'
    )


def _read(config: Mapping[str, Any], head: bool) -> dict[str, Any]:
  del head
  width, quick = config['embed_dim'], bool(config.get('quick_gelu'))
  image, text = config['vision_cfg'], config['text_cfg']
  tokenizer = 'bert' if text.get('hf_tokenizer_name') else 'open_clip'
  return {
    'image': {**_image(image, quick), 'projection': width},
    'text_model': 'text_transformer',
    'text': _text(text, quick),
    'pp': {
      'tokenizer_name': tokenizer,
      'max_len': text.get('context_length', 77),
    },
    'out_dim': (None, width),
    'bias_init': config['init_logit_bias'],
    'temperature_max': families.CLIP_TEMPERATURE_MAX,
  }


def _image(tower: Mapping[str, Any], quick: bool) -> dict[str, Any]:
  width = tower.get('width', 768)
  model = {
    'patches': {
      'size': families.pair(tower.get('patch_size', 16)),
      'bias': False,
    },
    'hidden_size': width,
    'transformer': {
      'num_layers': tower.get('layers', 12),
      'num_heads': width // tower.get('head_width', 64),
      'dropout_rate': 0.0,
      'attention_dropout_rate': 0.0,
      'first_norm': not tower.get('no_ln_pre', False),
      **_encoder(tower, width, quick),
    },
    'classifier': _POOLS[tower.get('pool_type', 'tok')],
    'representation_size': None,
    'posemb_resize': 'bicubic_antialias',
  }
  # Of one token, the LayerNorm may come before or after.
  if tower.get('final_ln_after_pool') and model['classifier'] != 'token':
    model['fc_norm'] = True
  return model


def _text(tower: Mapping[str, Any], quick: bool) -> dict[str, Any]:
  width = tower.get('width', 512)
  vocab_size = tower.get('vocab_size', 49_408)
  ends = {'argmax': vocab_size - 1, 'eos': tower.get('eos_id', 2), 'last': None}
  encoder = _encoder(tower, width, quick)
  if not tower.get('no_causal_mask'):
    encoder['block'] = {**encoder.get('block', {}), 'causal': True}
  return {
    'width': width,
    'num_layers': tower.get('layers', 12),
    'num_heads': tower.get('heads', 8),
    'mlp_dim': encoder.pop('mlp_dim'),
    'vocab_size': vocab_size,
    'end': ends[tower.get('pool_type', 'argmax')],
    'head_bias': bool(tower.get('proj_bias')),
    'encoder': encoder,
  }


def _encoder(
  tower: Mapping[str, Any], width: int, quick: bool
) -> dict[str, Any]:
  """Returns what both towers say alike of their blocks."""
  norm, activation = (tower.get(f'{x}_kwargs') or {} for x in ('norm', 'act'))
  block: dict[str, Any] = {'activation': 'quick_gelu'} if quick else {}
  if tower.get('ls_init_value'):
    block['layer_scale'] = tower['ls_init_value']
  encoder = {
    'mlp_dim': int(width * tower.get('mlp_ratio', 4.0)),
    'layer_norm_epsilon': norm.get('eps', 1e-5),
    'exact_gelu': not quick and activation.get('approximate') != 'tanh',
  }
  return {**encoder, 'block': block} if block else encoder


def _resize_test(mode: str, size: tuple[int, int]) -> int | None:
  if mode == 'shortest' and size[0] == size[1]:
    return size[0]
  if mode != 'squash':
    logging.warning(
      'open_clip resizes images by resize_mode %r, which is not supported for'
      ' %s: whole images are resized.',
      mode,
      size,
    )
  return None
