"""Reads timm's `VisionTransformer`, its hybrids and `MlpMixer`."""

from collections.abc import Mapping
import copy
import math
import pathlib
import re
from typing import Any

from absl import logging

from vit_jax.configs import spec
from vit_jax.runtime import files
from vit_jax.weights import array_files
from vit_jax.weights import extras
from vit_jax.weights import infer
from vit_jax.weights import npz
from vit_jax.weights import record as weights_lib
from vit_jax.weights import timm_names
from vit_jax.weights import torch_layout

EPSILON = 1e-6  # LayerNorm's; timm's config.json does not give it.
OPTIONS = 'vit_jax_options'  # Our key there, for settings it cannot give.

_POSEMB = 'Transformer/posembed_input/pos_embedding'

# Whether `act_layer` is the exact GELU; None is timm's default.
_EXACT_GELU = {None: True, 'gelu': True, 'gelu_tanh': False}

# Unusual settings of architectures, which a config.json does not repeat.
_UNUSUAL = (
  (r'test_vit2?', {'num_heads': 2}),
  (r'vit_base_patch16_gap_224', {'num_heads': 16}),
  (r'vit_giantopt_.*', {'num_heads': 16}),
  (r'.*_quickgelu_.*', {'act_layer': 'quick_gelu'}),
  (r'vit_base_patch32_siglip_(gap_)?256', {'act_layer': 'gelu_tanh'}),
  (r'vit_large_patch16_siglip_(gap_)?512', {'act_layer': 'gelu_tanh'}),
  (r'vit_(so400m|giantopt)_patch16_siglip_.*', {'act_layer': 'gelu_tanh'}),
)

_HYBRIDS_DIFFER = (
  'timm standardises the kernels of a ResNet by another formula: logits of'
  ' hybrids differ by up to 1e-3 of their size.'
)


def find(path: pathlib.Path) -> pathlib.Path | None:
  """Returns a `.safetensors`, or its folder, of a model of timm."""
  if not array_files.is_safetensors(path):
    return None
  is_ours = timm_names.is_names(array_files.safetensors_names(path))
  has_config = 'architecture' in files.read_json(path / 'config.json')
  return path if is_ours or has_config else None


def read(path: pathlib.Path) -> weights_lib.Weights:
  """Reads a `.safetensors` of timm, or a folder with it and `config.json`."""
  folder = path if path.is_dir() else path.parent
  arrays = array_files.read_safetensors(path)
  config = files.read_json(folder / 'config.json')
  architecture = config.get('architecture')
  with weights_lib.naming(f'({architecture})' if architecture else ''):
    return from_state_dict(arrays, config, path.stem)


def from_state_dict(
  arrays: Mapping[str, Any],
  config: Mapping[str, Any],
  model_name: str = 'model',
) -> weights_lib.Weights:
  """Returns the weights in a state dict and its `config.json`.

  Without a config, heads are those usual for the width, and the arrays tell the
  pooling.
  """
  arguments = _arguments(config)
  if not timm_names.is_names(arrays):
    raise weights_lib.WeightsError(
      f'is neither a ViT nor a Mixer of timm: its {len(arrays)} arrays have'
      f' names such as {", ".join(sorted(arrays)[:3])}.'
    )
  if 'stem.proj.weight' in arrays:
    names, heads = timm_names.MIXER, 1
    flat = torch_layout.renamed(arrays, names)
  else:
    names = timm_names.vit_names(
      stages=f'{timm_names.BACKBONE}stem.conv.weight' in arrays
    )
    flat = torch_layout.renamed(timm_names.split_qkv(arrays), names)
    if 'cls' in flat and 'pos_embed' in arrays:
      num_patches = _num_patches(arrays, config)
      flat[_POSEMB] = npz.with_class_token(flat[_POSEMB], num_patches)
    known = config.get(OPTIONS, {}) | arguments
    heads = known.get('num_heads') or infer.known_num_heads(
      flat['embedding/bias'].shape[0], has_config=bool(config)
    )
  params = torch_layout.to_linen(flat, names, heads)
  weights = infer.described(params, model_name)
  weights = _describe(weights, config, arguments)
  weights_lib.check(weights, names)
  return weights


def _arguments(config: Mapping[str, Any]) -> dict[str, Any]:
  """Returns timm's `model_args` and those that the architecture implies."""
  arguments: dict[str, Any] = {}
  name = str(config.get('architecture'))
  for pattern, unusual in _UNUSUAL:
    if re.fullmatch(pattern, name):
      arguments |= unusual
  return arguments | (config.get('model_args') or {})


def _image_size(config: Mapping[str, Any]) -> tuple[int, int] | None:
  pretrained = config.get('pretrained_cfg') or config
  size = (config.get('model_args') or {}).get('img_size')
  size = size or tuple((pretrained.get('input_size') or (0,))[1:])
  return ((size, size) if isinstance(size, int) else tuple(size)) or None


def _num_patches(
  arrays: Mapping[str, Any], config: Mapping[str, Any]
) -> int | None:
  """Returns the number of patches of a plain ViT, if its config tells."""
  size = _image_size(config)
  if not size or any(name.startswith(timm_names.BACKBONE) for name in arrays):
    return None
  patch = arrays['patch_embed.proj.weight'].shape[2:]
  return (size[0] // patch[0]) * (size[1] // patch[1])


def _describe(
  weights: weights_lib.Weights,
  config: Mapping[str, Any],
  arguments: Mapping[str, Any],
) -> weights_lib.Weights:
  """Returns weights with the fields of the `config.json`."""
  activation = arguments.get('act_layer')
  if activation not in _EXACT_GELU:
    raise weights_lib.WeightsError(
      f"has the activation {activation!r}; 'gelu' and 'gelu_tanh' are known."
    )
  model = copy.deepcopy(dict(weights.known_model()))
  classifier = _classifier(weights.params, config, arguments)
  if 'classifier' in model:
    model['classifier'] = classifier
  encoder = spec.encoder(model) or {}
  encoder['layer_norm_epsilon'] = EPSILON
  encoder['exact_gelu'] = _EXACT_GELU[activation]
  encoder.update(config.get(OPTIONS, {}))
  if spec.of(model).stem_units is not None:
    logging.warning(_HYBRIDS_DIFFER)
  pretrained = config.get('pretrained_cfg') or config
  size, config_size = weights.preprocessing.size, _image_size(config)
  if config_size and (size is None or arguments.get('img_size')):
    size = config_size
  class_names = weights.class_names
  labels = config.get('label_names') or pretrained.get('label_names')
  if labels and len(labels) == len(class_names):
    class_names = list(labels)
  return extras.described(
    weights,
    config,
    {
      'size': size,
      'mean': pretrained.get('mean'),
      'std': pretrained.get('std'),
      'resize_test': _resize_test(pretrained, size, model['model_name']),
    },
    model=model,
    class_names=class_names,
  )


def _resize_test(
  pretrained: Mapping[str, Any], size: tuple[int, int] | None, model_name: str
) -> int | tuple[int, int] | None:
  """Returns the size to which timm resizes before a centre crop."""
  if size is None or not pretrained.get('crop_pct'):
    return None
  height, width = (math.floor(n / pretrained['crop_pct']) for n in size)
  mode = pretrained.get('crop_mode') or 'center'
  if mode == 'center' and size[0] == size[1]:
    return height
  if mode == 'squash':
    return None if (height, width) == tuple(size) else (height, width)
  logging.warning(
    '%s: timm crops images to %s by crop_mode %r, which is not supported here:'
    ' whole images are resized.',
    model_name,
    size,
    mode,
  )
  return None


def _classifier(
  params: weights_lib.Params,
  config: Mapping[str, Any],
  arguments: Mapping[str, Any],
) -> str:
  has_token = 'cls' in params
  by_arrays = 'token' if has_token and 'fc_norm' not in params else 'avg'
  pool = arguments.get('global_pool', config.get('global_pool', by_arrays))
  classifier = {
    ('token', True): 'token',
    ('avg', True): 'token_gap',
    ('avg', False): 'gap',
  }.get((pool, has_token))
  if classifier is None:
    raise weights_lib.WeightsError(
      f"pools by {pool!r}, which no model here does; 'avg' and, with a class"
      f" token, 'token' are known."
    )
  return classifier
