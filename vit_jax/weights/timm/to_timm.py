"""Exports weights as models of timm."""

from collections.abc import Mapping
import math
from typing import Any

from absl import logging

from vit_jax.configs import models as model_configs
from vit_jax.configs import spec
from vit_jax.runtime import errors
from vit_jax.weights import extras
from vit_jax.weights import pillow_filters
from vit_jax.weights import record as weights_lib
from vit_jax.weights import to_huggingface
from vit_jax.weights import token_positions
from vit_jax.weights import torch_layout
from vit_jax.weights.timm import architectures
from vit_jax.weights.timm import from_timm
from vit_jax.weights.timm import module_names
from vit_jax.weights.timm import vits

# The only hybrids and Mixers of timm: hybrids by our name, Mixers by width, as
# (letter, blocks).
_HYBRIDS = {
  'R+ViT-Ti_16': 'vit_tiny_r_s16_p8_224',
  'R26+ViT-S_32': 'vit_small_r26_s32_224',
  'R26+ViT-B_32': 'vit_base_r26_s32_224',
  'R50+ViT-B_16': 'vit_base_r50_s16_224',
  'R50+ViT-L_32': 'vit_large_r50_s32_224',
}
_MIXERS = {512: ('s', 8), 768: ('b', 12), 1024: ('l', 24)}
_MIXER_PATCHES = ((16, 16), (32, 32))

# (array names, architecture, model_args, pooling)
_Exported = tuple[dict[str, str], str, dict[str, Any], str]


def export(
  weights: weights_lib.Weights,
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
  """Returns ({timm's name: array}, {'config.json': JSON}) for timm.

  Raises:
    errors.UserError: if timm has no such model.
  """
  if weights.spec.has_texts:
    logging.warning('timm has no texts: only the image tower is written.')
    weights = weights.image_tower()
  original, is_projected = weights, 'projection' in weights.params
  if is_projected and not weights.class_names:
    weights = vits.projection_as_head(weights)
  if 0 < weights.spec.num_positioned < weights.spec.num_prefix_tokens:
    weights = token_positions.positioned(weights, 0)
  what = weights.spec
  height, width, channels = weights.input_shape()
  names, architecture, arguments, pool = _EXPORTERS[what.family](weights)
  arguments |= {
    'img_size': height if height == width else [height, width],
    'in_chans': channels,
  }
  config = {
    'architecture': architecture,
    'num_classes': len(weights.class_names),
    'num_features': what.width,
    'global_pool': pool,
    from_timm.OPTIONS: _encoder_settings(weights, architecture, arguments),
    'label_names': list(original.class_names),
    'model_args': arguments,
    'pretrained_cfg': _pretrained_cfg(weights, names),
  }
  if is_projected:
    config[from_timm.PROJECTED] = True
  arrays = module_names.join(
    torch_layout.from_linen(weights.params, names),
    eva=architecture == architectures.DINOV3,
  )
  again = from_timm.from_state_dict(arrays, config)
  config[extras.KEY] = extras.lost(original, again)
  return arrays, {'config.json': config}


def _encoder_settings(
  weights: weights_lib.Weights, architecture: str, arguments: dict[str, Any]
) -> dict[str, Any]:
  """Returns ours, adds the activation to timm's and warns if they differ."""
  what, options = weights.spec, spec.encoder(weights.model) or {}
  implied = architectures.arguments({'architecture': architecture})
  epsilon = implied.get(architectures.NORM_EPSILON, architectures.EPSILON)
  ours = {
    'layer_norm_epsilon': options.get('layer_norm_epsilon', epsilon),
    'exact_gelu': bool(options.get('exact_gelu')),
  }
  if 'num_heads' in options:
    ours['num_heads'] = options['num_heads']
  activation = options.get('block', {}).get('activation', 'gelu')
  if activation == 'quick_gelu':
    arguments['act_layer'] = 'quick_gelu'
  elif activation == 'gelu' and not ours['exact_gelu']:
    if what.family == 'vit':
      arguments['act_layer'] = 'gelu_tanh'
    else:
      logging.warning('The GELU is the tanh approximation here, exact in timm.')
  if ours['layer_norm_epsilon'] != epsilon:
    logging.warning(
      'LayerNorm has epsilon %g here and %g in timm: logits differ slightly.',
      ours['layer_norm_epsilon'],
      epsilon,
    )
  return ours


def _pretrained_cfg(
  weights: weights_lib.Weights, names: Mapping[str, str]
) -> dict[str, Any]:
  height, width, channels = weights.input_shape()
  preprocessing = weights.preprocessing
  return {
    'input_size': [channels, height, width],
    'mean': to_huggingface.per_channel(preprocessing.mean, channels),
    'std': to_huggingface.per_channel(preprocessing.std, channels),
    'interpolation': pillow_filters.name(preprocessing.interpolation),
    **_crop(weights),
    'num_classes': len(weights.class_names),
    **_adapted(weights, names),
  }


def _adapted(
  weights: weights_lib.Weights, names: Mapping[str, str]
) -> dict[str, Any]:
  """Returns timm's names of the modules that it adapts to other images or classes.

  Before 1.0.31, timm takes the `first_conv` for one of colours, whatever the weights
  have, and adapts it to `in_chans`.
  """
  first, *heads = (
    names[name].removesuffix('.weight')
    for name in (
      weights.spec.first_kernel,
      *(f'{head}/kernel' for head in weights.spec.heads),
    )
  )
  of_images = {'first_conv': first} if weights.input_shape()[2] == 3 else {}
  return {**of_images, 'classifier': heads[0] if len(heads) == 1 else heads}


def _crop(weights: weights_lib.Weights) -> dict[str, Any]:
  """Returns how timm prepares an image: it divides by `crop_pct`."""
  height, width, _ = weights.input_shape()
  resize = weights.preprocessing.resize_test
  whole = {'crop_pct': 1.0, 'crop_mode': 'squash'}
  if resize is None:
    return whole
  if isinstance(resize, int):
    mode, is_known, resized = 'center', height == width, resize
  else:
    mode, resized = 'squash', resize[0]
    is_known = height * resize[1] == width * resize[0]
  if not is_known:
    logging.warning('timm cannot resize to %s before it crops.', resize)
    return whole
  # timm cuts off the decimals of the quotient.
  return {'crop_pct': math.nextafter(height / resized, 0), 'crop_mode': mode}


def _export_mixer(weights: weights_lib.Weights) -> _Exported:
  return module_names.MIXER, _mixer_architecture(weights.module()), {}, 'avg'


def _mixer_architecture(module: Any) -> str:
  width, patch = module.hidden_dim, tuple(module.patches['size'])
  sizes = (module.num_blocks, module.tokens_mlp_dim, module.channels_mlp_dim)
  letter, *usual = _MIXERS.get(width, ('', 0))
  if sizes != (*usual, width // 2, 4 * width) or patch not in _MIXER_PATCHES:
    raise errors.UserError(
      f'timm has no Mixer of width {width}, patch {patch} and {sizes} blocks,'
      f' token and channel mlp dimensions; it has only the released sizes.'
    )
  return f'mixer_{letter}{patch[0]}_224'


def _export_vit(weights: weights_lib.Weights) -> _Exported:
  module, what = weights.module(), weights.spec
  vits.check(module, what)
  names = module_names.vit_names(stages=bool(what.stem_units))
  if what.stem_units is None:
    architecture, arguments = vits.described(module, what)
    return names, architecture, arguments, arguments['global_pool']
  architecture = _hybrid_architecture(module, what.stem_units)
  pool = vits.POOLS[what.pooling]
  arguments = {
    'class_token': what.has_class_token,
    'global_pool': pool,
    'fc_norm': module.fc_norm,
  }
  return names, architecture, arguments, pool


def _hybrid_architecture(module: Any, stages: tuple[int, ...]) -> str:
  sizes = ('mlp_dim', 'num_heads', 'num_layers')
  ours = [module.transformer[name] for name in sizes]
  for name, architecture in _HYBRIDS.items():
    config = model_configs.MODEL_CONFIGS[name]
    if (
      tuple(config.resnet.num_layers) == stages
      and config.resnet.width_factor == module.resnet['width_factor']
      and tuple(config.patches.size) == tuple(module.patches['size'])
      and config.hidden_size == module.hidden_size
      and [config.transformer[size] for size in sizes] == ours
    ):
      return architecture  # Reading it back warns that outputs differ.
  raise errors.UserError(
    f'timm has no hybrid with ResNet stages {stages}, width'
    f' {module.hidden_size} and {ours} mlp dimensions, heads and layers; it has'
    f' only the released ones.'
  )


_EXPORTERS = {'vit': _export_vit, 'mixer': _export_mixer}
