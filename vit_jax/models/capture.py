"""Tokens and attention weights from inside a model."""

from collections.abc import Callable
import functools
from typing import Any

import flax.traverse_util
import jax.numpy as jnp
from jaxtyping import Array, Float

from vit_jax.configs import spec
from vit_jax.models import inference
from vit_jax.models.mixer import MlpMixer
from vit_jax.models.vit import VisionTransformer
from vit_jax.runtime import errors

POOLINGS = ('cls', 'gap', 'tokens')

Model = VisionTransformer | MlpMixer
Function = Callable[[Any, Float[Array, 'B H W C']], Float[Array, 'B ...']]


def features(
  module: Model, layer: int | None = None, pooling: str | None = None
) -> Function:
  """Returns a function of (parameters, images) that computes a layer's output.

  Args:
    module: a ViT or a Mixer.
    layer: a block, from 1 to the depth; None for the last LayerNorm or, without
      `pooling` too, the input of the head.
    pooling: 'cls' (class token), 'gap' (mean of the patches), 'tokens' (all
      tokens, [B, L, D]); None for the pooling of the model, where 'gap' stands
      for attention.

  Raises:
    errors.UserError: if the model has no such layer or token.
  """
  headless = module.clone(num_classes=None)
  if layer is None and pooling is None:
    return functools.partial(inference.apply, headless)
  model = spec.of_module(module)
  name = _layer_name(model, layer)
  has_token = model.pooling in ('token', 'token_mean')
  pooling = pooling or ('cls' if has_token else 'gap')
  if pooling not in POOLINGS:
    raise errors.UserError(
      f'The pooling is {pooling!r}, must be one of {", ".join(POOLINGS)}.'
    )
  if pooling == 'cls' and not model.has_class_token:
    raise errors.UserError('The model has no class token. Use the pooling gap.')

  def apply(params: Any, images: Float[Array, 'B H W C']) -> Array:
    flat = _intermediates(
      headless,
      params,
      images,
      capture_intermediates=lambda m, _: m.name == name,
    )
    [x] = [x for path, x in flat.items() if path.endswith(f'{name}/__call__')]
    if pooling == 'cls':
      return x[:, 0]
    patches = x[:, model.num_prefix_tokens :]
    return jnp.mean(patches, axis=1) if pooling == 'gap' else x

  return apply


def _layer_name(model: spec.ModelSpec, layer: int | None) -> str:
  if layer is None and not model.last_norm:
    layer = model.depth
  if not model.depth or (layer is not None and not 0 < layer <= model.depth):
    raise errors.UserError(
      f'The layer is {layer}; the model has {model.depth}, numbered from 1.'
    )
  return f'{model.block}_{layer - 1}' if layer else model.last_norm


def attention(
  module: Model, of_layer: Callable[[Array], Array] = lambda weights: weights
) -> Function:
  """Returns a function of (parameters, images) to weights [B, layers, N, L, L].

  They are computed by plain attention, because fused attention never has the weights
  in memory.

  Args:
    module: a ViT whose blocks are not scanned.
    of_layer: applied to the weights of each layer, [B, N, L, L].

  Raises:
    errors.UserError: if the model has no attention.
  """
  model = spec.of_module(module)
  if not model.num_heads:
    raise errors.UserError(
      'The model has no attention: it is a Mixer, or a ResNet alone.'
    )
  attention = 'MultiHeadDotProductAttention_0/attention_weights'
  name = f'Transformer/{model.block}_{{}}/{attention}'

  def apply(params: Any, images: Float[Array, 'B H W C']) -> Array:
    flat = _intermediates(module, params, images)
    by_layer = [flat[name.format(i)] for i in range(model.depth)]
    return jnp.stack([of_layer(weights) for weights in by_layer], axis=1)

  return apply


def _intermediates(
  module: Model, params: Any, images: Array, **kwargs: Any
) -> dict[str, Array]:
  """Returns what modules sow, by path."""
  _, state = module.apply(
    {'params': params}, images, train=False, mutable='intermediates', **kwargs
  )
  flat = flax.traverse_util.flatten_dict(state['intermediates'], sep='/')
  return {path: values[0] for path, values in flat.items()}
