"""The model in the official code's operations: Flax's own layers, float32.

For comparison only. Names of parameters are those of `vit_jax.models`.
"""

from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax.numpy as jnp

_INIT = {
  'kernel_init': nn.initializers.xavier_uniform(),
  'bias_init': nn.initializers.normal(stddev=1e-6),
}


class MlpBlock(nn.Module):
  """Dense, gelu, Dense."""

  mlp_dim: int
  dtype: Any

  @nn.compact
  def __call__(self, x):
    h = nn.gelu(nn.Dense(self.mlp_dim, dtype=self.dtype, **_INIT)(x))
    return nn.Dense(x.shape[-1], dtype=self.dtype, **_INIT)(h)


class Encoder1DBlock(nn.Module):
  """Attention and MLP with residual connections."""

  mlp_dim: int
  num_heads: int
  dtype: Any

  @nn.compact
  def __call__(self, x):
    y = nn.LayerNorm(dtype=self.dtype)(x)
    x = x + nn.MultiHeadDotProductAttention(
      self.num_heads,
      dtype=self.dtype,
      kernel_init=_INIT['kernel_init'],
    )(y, y)
    y = nn.LayerNorm(dtype=self.dtype)(x)
    return x + MlpBlock(self.mlp_dim, self.dtype)(y)


class Encoder(nn.Module):
  """The blocks, between position embeddings and a LayerNorm."""

  transformer: Mapping[str, Any]
  dtype: Any

  @nn.compact
  def __call__(self, x):
    init = nn.initializers.normal(stddev=0.02)
    x = x + AddPositionEmbs(init, name='posembed_input')(x)
    for i in range(self.transformer['num_layers']):
      x = Encoder1DBlock(
        self.transformer['mlp_dim'],
        self.transformer['num_heads'],
        self.dtype,
        name=f'encoderblock_{i}',
      )(x)
    return nn.LayerNorm(name='encoder_norm')(x)


class AddPositionEmbs(nn.Module):
  """Returns the position embeddings."""

  init: Any

  @nn.compact
  def __call__(self, x):
    return self.param('pos_embedding', self.init, (1, *x.shape[1:]))


class VisionTransformer(nn.Module):
  """A ViT with a class token, without dropout."""

  num_classes: int
  patches: Mapping[str, Any]
  transformer: Mapping[str, Any]
  hidden_size: int
  dtype: Any = jnp.float32

  @nn.compact
  def __call__(self, inputs, *, train):
    del train
    size = tuple(self.patches['size'])
    x = nn.Conv(
      self.hidden_size,
      size,
      strides=size,
      padding='VALID',
      dtype=self.dtype,
      name='embedding',
    )(inputs)
    x = x.reshape(x.shape[0], -1, x.shape[-1])
    cls = self.param('cls', nn.initializers.zeros, (1, 1, x.shape[-1]))
    cls = jnp.tile(cls, (x.shape[0], 1, 1)).astype(x.dtype)
    x = jnp.concatenate([cls, x], axis=1)
    x = Encoder(self.transformer, self.dtype, name='Transformer')(x)
    return nn.Dense(self.num_classes, name='head')(x[:, 0])
