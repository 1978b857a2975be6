"""What happens inside a model: the tokens of a layer, weights of attention."""

from collections.abc import Callable
import re
from typing import Any

import flax.traverse_util
import jax.numpy as jnp
from jaxtyping import Array, Float

from vit_jax.configs import spec
from vit_jax.models.mixer import MlpMixer
from vit_jax.models.vit import VisionTransformer
from vit_jax.runtime import errors

POOLINGS = ('cls', 'gap', 'tokens')

Model = VisionTransformer | MlpMixer
Function = Callable[[Any, Float[Array, 'B H W C']], Float[Array, 'B ...']]


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
  what = spec.of_module(module)
  name = _layer_name(what, layer)
  pooling = pooling or ('cls' if what.pooling == 'token' else 'gap')
  if pooling not in POOLINGS:
    raise errors.UserError(
      f'The pooling is {pooling!r}, must be one of {", ".join(POOLINGS)}.'
    )
  if pooling == 'cls' and not what.num_prefix_tokens:
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
    patches = x[:, what.num_prefix_tokens :]
    return jnp.mean(patches, axis=1) if pooling == 'gap' else x

  return apply


def _layer_name(what: spec.ModelSpec, layer: int | None) -> str:
  if layer is None and not what.last_norm:
    layer = what.depth
  if not what.depth or (layer is not None and not 0 < layer <= what.depth):
    raise errors.UserError(
      f'The layer is {layer}; the model has {what.depth}, numbered from 1.'
    )
  return f'{what.block}_{layer - 1}' if layer else what.last_norm


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
  what = spec.of_module(module)
  if not what.num_heads:
    raise errors.UserError(
      'The model has no attention: it is a Mixer, or a ResNet alone.'
    )

  def apply(params: Any, images: Float[Array, 'B H W C']) -> Array:
    _, state = module.apply(
      {'params': params}, images, train=False, mutable='intermediates'
    )
    by_layer = {
      int(re.search(rf'{what.block}_(\d+)', path)[1]): values[0]
      for path, values in _flat(state)
      if path.endswith('attention_weights')
    }
    weights = [of_layer(by_layer[i]) for i in range(what.depth)]
    return jnp.stack(weights, axis=1)

  return apply


def _flat(state: Any) -> list[tuple[str, Any]]:
  flat = flax.traverse_util.flatten_dict(state['intermediates'], sep='/')
  return list(flat.items())
