"""The forward pass without training: weights cast once, images in chunks."""

import re
from typing import Any

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Num

from vit_jax.models import arithmetic

# Kernels that only `arithmetic.einsum` multiplies with, which rounds them anyway.
# Text towers, ResNets and heads compute in float32.
_ROUNDED = re.compile(
  r'(img/)?(embedding|stem|Transformer/encoderblock.*|MixerBlock.*|MAPHead_0/.*)/kernel'
)

# Images whose activations fit into the caches of a processor.
_CHUNK = 4


def cast_weights(params: Any, dtype: Any) -> Any:
  """Returns parameters with kernels in bfloat16 where a bfloat16 model casts them.

  The outputs have the same bits; each call reads half as many bytes.
  """
  if arithmetic.policy(dtype).factors != 'bfloat16':
    return params

  def cast(path: tuple[Any, ...], x: Any) -> Any:
    return x.astype(jnp.bfloat16) if _ROUNDED.fullmatch('/'.join(path)) else x

  return flax.traverse_util.path_aware_map(cast, params)


def apply(
  model: nn.Module, params: Any, images: Num[Array, 'B H W C']
) -> Float[Array, 'B ...']:
  """Returns the outputs of a ViT or a Mixer; call it in `jax.jit`.

  On one CPU device a large batch is computed in chunks that fit into its caches.
  """

  def forward(images: Num[Array, 'N H W C']) -> Float[Array, 'N ...']:
    outputs: Any = model.apply({'params': params}, images, train=False)
    return outputs

  size = _chunk_size(len(images))
  if size == len(images):
    return forward(images)
  chunks = images.reshape(-1, size, *images.shape[1:])
  outputs = jax.lax.map(forward, chunks)
  return outputs.reshape(len(images), *outputs.shape[2:])


def _chunk_size(batch_size: int) -> int:
  """Returns how many images are computed at once, a divisor of the batch."""
  if jax.default_backend() != 'cpu' or jax.device_count() > 1:
    return batch_size
  return batch_size if batch_size % _CHUNK else _CHUNK
