"""What happens inside a model: the tokens of a layer, weights of attention."""

from collections.abc import Callable
import re
from typing import Any

import flax.linen as nn
import flax.traverse_util
import jax.numpy as jnp
from jaxtyping import Array, Float

from vit_jax.models.mixer import MlpMixer
from vit_jax.models.vit import VisionTransformer
from vit_jax.runtime import errors

POOLINGS = ('cls', 'gap', 'tokens')

Model = VisionTransformer | MlpMixer
Function = Callable[[Any, Float[Array, 'B H W C']], Float[Array, 'B ...']]


def depth(module: Model) -> int:
  """Returns how many blocks a model has."""
  if isinstance(module, MlpMixer):
    return module.num_blocks
  return module.transformer['num_layers'] if module.transformer else 0


def has_class_token(module: Model) -> bool:
  """Whether the first token is the class token."""
  return getattr(module, 'classifier', '').startswith('token')


def features(
  module: Model, layer: int | None = None, pooling: str | None = None
) -> Function:
  """Returns (parameters, images) to the output of a layer.

  Args:
    module: a ViT or a Mixer.
    layer: a block, from 1 to the depth; None for the last LayerNorm.
    pooling: 'cls' (class token), 'gap' (mean of the other tokens), 'tokens'
      (all of them, [B, L, D]); None for that of the model.

  Raises:
    errors.UserError: if the model has no such layer or token.
  """
  name, pooling = _layer_name(module, layer), pooling or _pooling(module)
  if pooling not in POOLINGS:
    raise errors.UserError(
      f'The pooling is {pooling!r}, must be one of {", ".join(POOLINGS)}.'
    )
  first_patch = int(has_class_token(module))
  if pooling == 'cls' and not first_patch:
    raise errors.UserError('The model has no class token. Use the pooling gap.')
  module = module.clone(num_classes=None)

  def apply(params: Any, images: Float[Array, 'B H W C']) -> Array:
    _, state = module.apply(
      {'params': params},
      images,
      train=False,
      capture_intermediates=lambda m, _: m.name == name,
      mutable='intermediates',
    )
    [x] = [
      values[0]
      for path, values in _flat(state)
      if path.endswith(f'{name}/__call__')
    ]
    if pooling == 'cls':
      return x[:, 0]
    return jnp.mean(x[:, first_patch:], axis=1) if pooling == 'gap' else x

  return apply


def _layer_name(module: Model, layer: int | None) -> str:
  layers = depth(module)
  if layer is None and getattr(module, 'fc_norm', False):
    layer = layers  # Its last LayerNorm comes after the pooling.
  if not layers or (layer is not None and not 0 < layer <= layers):
    raise errors.UserError(
      f'The layer is {layer}; the model has {layers}, of which 1 is the first.'
    )
  if isinstance(module, MlpMixer):
    return f'MixerBlock_{layer - 1}' if layer else 'pre_head_layer_norm'
  return f'encoderblock_{layer - 1}' if layer else 'encoder_norm'


def _pooling(module: Model) -> str:
  return 'cls' if getattr(module, 'classifier', '') == 'token' else 'gap'


def has_attention(module: nn.Module) -> bool:
  """Whether there is any: not in a Mixer, nor in a ResNet alone."""
  return isinstance(module, VisionTransformer) and depth(module) > 0


def attention(
  module: Model, of_layer: Callable[[Array], Array] = lambda weights: weights
) -> Function:
  """Returns (parameters, images) to weights [B, layers, heads, L, L].

  They are those of plain attention also of a model that trains with a fused one,
  which never has them in memory.

  Args:
    module: a ViT, its blocks not scanned.
    of_layer: applied to the weights of each layer, [B, heads, L, L].

  Raises:
    errors.UserError: if the model has no attention.
  """
  if not has_attention(module):
    raise errors.UserError(
      'The model has no attention: it is a Mixer, or a ResNet alone.'
    )

  def apply(params: Any, images: Float[Array, 'B H W C']) -> Array:
    _, state = module.apply(
      {'params': params}, images, train=False, mutable='intermediates'
    )
    by_layer = {
      int(re.search(r'encoderblock_(\d+)', path)[1]): values[0]
      for path, values in _flat(state)
      if path.endswith('attention_weights')
    }
    weights = [of_layer(by_layer[i]) for i in range(depth(module))]
    return jnp.stack(weights, axis=1)

  return apply


def _flat(state: Any) -> list[tuple[str, Any]]:
  flat = flax.traverse_util.flatten_dict(state['intermediates'], sep='/')
  return list(flat.items())
