"""Takes LayerScale out of a ViT, for formats that lack it."""

import copy
import dataclasses

import numpy as np

from vit_jax.configs import spec
from vit_jax.weights import record as weights_lib

# Layers whose outputs are multiplied, by the name of their LayerScale.
_BEFORE = {
  'LayerScale_0': 'MultiHeadDotProductAttention_0/out',
  'LayerScale_1': 'MlpBlock_0/Dense_1',
}


def multiplied_in(weights: weights_lib.Weights) -> weights_lib.Weights:
  """Returns weights of an equal ViT whose kernels are multiplied by LayerScale.

  Weights without LayerScale are returned as they are.
  """
  model = copy.deepcopy(dict(weights.known_model()))
  encoder = spec.encoder(model) or {}
  block = dict(encoder.get('block', {}))
  if spec.has_texts(model) or block.pop('layer_scale', None) is None:
    return weights
  del encoder['block']
  encoder |= {'block': block} if block else {}
  flat = weights_lib.flatten(weights.params)
  for name in [name for name in flat if name.endswith('/scale')]:
    place, _, kind = name.removesuffix('/scale').rpartition('/')
    if kind in _BEFORE:
      scale = np.asarray(flat.pop(name))
      for part in ('kernel', 'bias'):  # Channels are the last axis.
        array = f'{place}/{_BEFORE[kind]}/{part}'
        flat[array] = np.asarray(flat[array]) * scale
  return dataclasses.replace(
    weights, params=weights_lib.unflatten(flat), model=model
  )
