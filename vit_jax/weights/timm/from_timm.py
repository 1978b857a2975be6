"""Reads timm's `VisionTransformer`, its hybrids and `MlpMixer`."""

from collections.abc import Mapping
import copy
import math
import pathlib
from typing import Any

from absl import logging

from vit_jax.configs import spec
from vit_jax.runtime import files
from vit_jax.weights import array_files
from vit_jax.weights import checks
from vit_jax.weights import extras
from vit_jax.weights import infer
from vit_jax.weights import other_models
from vit_jax.weights import pillow_filters
from vit_jax.weights import record as weights_lib
from vit_jax.weights import torch_layout
from vit_jax.weights.timm import architectures
from vit_jax.weights.timm import module_names
from vit_jax.weights.timm import vits

OPTIONS = 'vit_jax_options'  # Our key there, for settings it cannot give.
PROJECTED = 'vit_jax_projection'  # Ours, if its head is a projection.

# Ours by timm's `act_layer`, None for its default.
_ACTIVATIONS: dict[str | None, dict[str, Any]] = {
  None: {'exact_gelu': True},
  'gelu': {'exact_gelu': True},
  'gelu_tanh': {'exact_gelu': False},
  'quick_gelu': {'exact_gelu': False, 'block': {'activation': 'quick_gelu'}},
}

# Ours by timm's `global_pool` and whether there is a class token.
_CLASSIFIERS = {
  ('token', True): 'token',
  ('avg', True): 'token_gap',
  ('avg', False): 'gap',
  ('map', True): 'token_map',
  ('map', False): 'map',
}

_NEEDED = ('embedding', 'Transformer/encoderblock_0')

_HYBRIDS_DIFFER = (
  'timm standardises the kernels of a ResNet by another formula: logits of'
  ' hybrids differ by up to 1e-3 of their size.'
)


def find(path: pathlib.Path) -> pathlib.Path | None:
  """Returns a `.safetensors`, or its folder, of a model of timm."""
  if not array_files.is_safetensors(path):
    return None
  is_ours = module_names.is_names(array_files.safetensors_names(path))
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
  architecture = architectures.name_of(config)
  if reason := other_models.reason(architecture):
    raise weights_lib.WeightsError(f'is {reason}.')
  if not module_names.is_names(arrays):
    raise weights_lib.WeightsError(
      f'is neither a ViT nor a Mixer of timm: its {len(arrays)} arrays have'
      f' names such as {", ".join(sorted(arrays)[:3])}.'
    )
  arguments = architectures.arguments(config)
  if 'stem.proj.weight' in arrays:
    names, heads = module_names.MIXER, 1
    flat = torch_layout.renamed(arrays, names)
  else:
    is_eva = module_names.is_eva(arrays) or 'rope_type' in arguments
    if is_eva and not config and _may_be_dinov3(arrays):
      arguments = architectures.arguments(
        {'architecture': architectures.DINOV3, 'global_pool': 'token'}
      )
    architectures.check(arguments, eva=is_eva)
    arrays = module_names.split(arrays)
    names = module_names.names_in(arrays)
    flat = torch_layout.renamed(arrays, names, _NEEDED)
    known = config.get(OPTIONS, {}) | arguments
    heads = known.get('num_heads') or infer.known_num_heads(
      flat['embedding/kernel'].shape[0], has_config=bool(config)
    )
  params = torch_layout.to_linen(flat, names, heads)
  weights = infer.described(
    params, model_name, _image_size(config), usual_positions=False
  )
  weights = _describe(weights, config, arguments)
  checks.check(weights, names)
  if config.get(PROJECTED):
    weights = vits.head_as_projection(weights)
  return weights


def _may_be_dinov3(arrays: Mapping[str, Any]) -> bool:
  tokens = {'cls_token', 'reg_token'}
  return tokens <= arrays.keys() and 'pos_embed' not in arrays


def _image_size(config: Mapping[str, Any]) -> tuple[int, int] | None:
  pretrained = config.get('pretrained_cfg') or config
  size = (config.get('model_args') or {}).get('img_size')
  size = size or tuple((pretrained.get('input_size') or (0,))[1:])
  return ((size, size) if isinstance(size, int) else tuple(size)) or None


def _describe(
  weights: weights_lib.Weights,
  config: Mapping[str, Any],
  arguments: Mapping[str, Any],
) -> weights_lib.Weights:
  """Returns weights with the fields of the `config.json`."""
  model = copy.deepcopy(dict(weights.known_model()))
  if 'classifier' in model:
    model['classifier'] = _classifier(weights.params, arguments)
  if model.get('distillation'):  # Without heads too, outputs are a mean of two.
    model['distillation'] = 'head'
  if arguments.get('rope_type') == 'dinov3':
    model['rotary_base'] = float(arguments.get('rope_temperature', 10_000))
  _describe_encoder(spec.encoder(model) or {}, arguments)
  (spec.encoder(model) or {}).update(config.get(OPTIONS, {}))
  resize = architectures.posemb_resize(config, spec.of(model))
  if resize != 'zoom' and OPTIONS not in config:  # Ours keep what they had.
    model['posemb_resize'] = resize
  if spec.of(model).stem_units is not None:
    logging.warning(_HYBRIDS_DIFFER)
  pretrained = config.get('pretrained_cfg') or config
  size, config_size = weights.preprocessing.size, _image_size(config)
  if config_size and (
    size is None
    or arguments.get('img_size')
    or spec.of(model).grid(config_size) == spec.of(model).grid(size)
  ):
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
      'interpolation': pillow_filters.interpolation(
        pretrained.get('interpolation'), model['model_name']
      ),
    },
    model=model,
    class_names=class_names,
  )


def _describe_encoder(
  encoder: dict[str, Any], arguments: Mapping[str, Any]
) -> None:
  """Adds the settings of an encoder that its arrays do not tell."""
  block = encoder.get('block', {})
  activation = arguments.get('act_layer')
  if activation not in _ACTIVATIONS:
    known = ', '.join(repr(name) for name in _ACTIVATIONS if name)
    raise weights_lib.WeightsError(
      f'has the activation {activation!r}; {known} are known.'
    )
  settings = dict(_ACTIVATIONS[activation])
  block = settings.pop('block', {}) | block
  if 'layer_scale' in block and arguments.get('init_values'):
    block['layer_scale'] = float(arguments['init_values'])
  encoder |= settings | ({'block': block} if block else {})
  encoder['layer_norm_epsilon'] = arguments.get(
    architectures.NORM_EPSILON, architectures.EPSILON
  )


def _resize_test(
  pretrained: Mapping[str, Any], size: tuple[int, int] | None, model_name: str
) -> int | tuple[int, int] | None:
  """Returns the size to which timm resizes before a centre crop."""
  if size is None or not pretrained.get('crop_pct'):
    return None
  height, width = (math.floor(n / pretrained['crop_pct']) for n in size)
  mode = pretrained.get('crop_mode') or 'center'
  is_inside = height >= size[0] and width >= size[1]
  if mode == 'center' and size[0] == size[1] and is_inside:
    return height
  if mode == 'squash' and is_inside:
    return None if (height, width) == tuple(size) else (height, width)
  logging.warning(
    '%s: timm crops images to %s by crop_mode %r and crop_pct %s, which is not'
    ' supported here: whole images are resized.',
    model_name,
    size,
    mode,
    pretrained['crop_pct'],
  )
  return None


def _classifier(
  params: weights_lib.Params, arguments: Mapping[str, Any]
) -> str:
  has_token = 'cls' in params
  by_arrays = 'token' if has_token and 'fc_norm' not in params else 'avg'
  if 'MAPHead_0' in params:
    by_arrays = 'map'
  pool = arguments.get('global_pool', by_arrays)
  classifier = _CLASSIFIERS.get((pool, has_token))
  if classifier is None or ('MAPHead_0' in params) != (pool == 'map'):
    raise weights_lib.WeightsError(
      f"pools by {pool!r}, which no model here does; 'avg', with its arrays 'map'"
      f" and, with a class token, 'token' are known."
    )
  return classifier
