"""Makes the arguments of a model's class from settings."""

import math
from typing import Any

import ml_collections

from vit_jax.configs import spec


def of_model(config: ml_collections.ConfigDict) -> dict[str, Any]:
  """Returns all arguments of the model's class except `num_classes`."""
  kwargs = config.model.to_dict()
  blocks = {
    'stochastic_depth_rate': config.stochastic_depth_rate,
    'layer_norm_epsilon': config.layer_norm_epsilon,
    'exact_gelu': config.exact_gelu,
    'remat': config.remat,
    'scan_layers': config.scan_layers,
  }
  common = {'head_bias_init': config.head_bias_init, 'dtype': config.dtype}
  what = spec.of(kwargs)
  if what.num_heads:
    # 'auto' is open until `training.resolve` has measured.
    attention = 'xla' if config.attention == 'auto' else config.attention
    blocks['attention'] = attention
    blocks['patch_dropout'] = config.patch_dropout
  if (encoder := spec.encoder(kwargs)) is not None:
    _add(encoder, blocks)
  _add(spec.image_tower(kwargs), common)
  if what.has_texts:
    kwargs['temperature_init'] = math.log(config.temperature_init)
    is_sigmoid = config.loss == 'sigmoid'
    kwargs['bias_init'] = config.bias_init if is_sigmoid else None
    kwargs['locked'] = config.lock_image_tower
    of_depth = {name: blocks[name] for name in ('remat', 'scan_layers')}
    _add(kwargs['text'].setdefault('encoder', {}), of_depth)
  return kwargs


def _add(arguments: dict[str, Any], defaults: dict[str, Any]) -> None:
  """Adds arguments that are not set, in front."""
  both = {**defaults, **arguments}
  arguments.clear()
  arguments.update(both)


def of_saved_model(config: ml_collections.ConfigDict) -> dict[str, Any]:
  """Returns `of_model` without what matters only for training."""
  kwargs = of_model(config)
  encoder = spec.encoder(kwargs) or {}
  for name in spec.OF_TRAINING:
    encoder.pop(name, None)
  spec.image_tower(kwargs).pop('head_bias_init')
  if kwargs.pop('locked', None) is not None:
    kwargs['text'] = config.model.text.to_dict()
  return kwargs
