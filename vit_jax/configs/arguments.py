"""From settings to the arguments of a model's class."""

import math
from typing import Any

import ml_collections


def of_model(config: ml_collections.ConfigDict) -> dict[str, Any]:
  """Returns the arguments of the model's class, but for the class count."""
  kwargs = config.model.to_dict()
  blocks = {
    'stochastic_depth_rate': config.stochastic_depth_rate,
    'layer_norm_epsilon': config.layer_norm_epsilon,
    'exact_gelu': config.exact_gelu,
    'remat': config.remat,
    'scan_layers': config.scan_layers,
  }
  common = {'head_bias_init': config.head_bias_init, 'dtype': config.dtype}
  if 'tokens_mlp_dim' in kwargs:  # A Mixer has no module between it and blocks.
    return {**common, **blocks, **kwargs}
  vit = kwargs.get('image', kwargs)  # The tower, where there are two.
  if vit['transformer'] is not None:
    # Until `defaults.fill` has chosen.
    attention = 'xla' if config.attention == 'auto' else config.attention
    blocks['attention'] = attention
    vit['transformer'] = {**blocks, **vit['transformer']}
  if vit is kwargs:
    return {**common, **vit}
  return {
    **kwargs,
    'image': {**common, **vit},
    'temperature_init': math.log(config.temperature_init),
    'bias_init': config.bias_init if config.loss == 'sigmoid' else None,
  }


def of_saved_model(config: ml_collections.ConfigDict) -> dict[str, Any]:
  """Returns `of_model` of a trained model: what it is, not how it learned."""
  kwargs = of_model(config)
  tower = kwargs.get('image', kwargs)
  for name in ('stochastic_depth_rate', 'attention', 'remat', 'scan_layers'):
    (tower.get('transformer') or tower).pop(name, None)
  tower.pop('head_bias_init')
  return kwargs
