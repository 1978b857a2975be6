"""MLP-Mixer (arXiv:2105.01601), with the official parameter names."""

import functools
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Num

from vit_jax.configs import models as model_configs
from vit_jax.models import blocks
from vit_jax.models.layers import Dense
from vit_jax.models.layers import LayerNorm
from vit_jax.models.layers import PatchEmbedding

Tokens = Float[Array, 'B L D']


class MlpBlock(nn.Module):
  """Dense, gelu, Dense, along the last axis."""

  mlp_dim: int
  exact_gelu: bool = False
  dtype: Any = jnp.float32

  @nn.compact
  def __call__(self, x: Float[Array, 'B M N']) -> Float[Array, 'B M N']:
    y = Dense(self.mlp_dim, dtype=self.dtype)(x)
    y = nn.gelu(y, approximate=not self.exact_gelu)
    return Dense(x.shape[-1], dtype=self.dtype)(y)


class MixerBlock(nn.Module):
  """Mixes tokens, then channels, with residual connections (Eq. 1)."""

  tokens_mlp_dim: int
  channels_mlp_dim: int
  layer_norm_epsilon: float = 1e-6
  exact_gelu: bool = False
  dtype: Any = jnp.float32

  @nn.compact
  def __call__(
    self, x: Tokens, stochastic_depth_rate: Any = None, *, deterministic: bool
  ) -> Tokens:
    drop_branch = functools.partial(
      blocks.drop_branch,
      self,
      rate=stochastic_depth_rate,
      deterministic=deterministic,
    )
    layer_norm = functools.partial(
      LayerNorm, epsilon=self.layer_norm_epsilon, dtype=self.dtype
    )
    mlp = functools.partial(
      MlpBlock, exact_gelu=self.exact_gelu, dtype=self.dtype
    )
    y = layer_norm()(x).swapaxes(1, 2)
    y = mlp(self.tokens_mlp_dim, name='token_mixing')(y).swapaxes(1, 2)
    x = x + drop_branch(y)
    y = mlp(self.channels_mlp_dim, name='channel_mixing')(layer_norm()(x))
    return x + drop_branch(y)


class MlpMixer(nn.Module):
  """Images to logits (Sec. 2).

  The number of patches is part of the weights: images of another size need
  other weights, unless their grid has as many patches.

  Attributes:
    num_classes: size of the head; None leaves it out and returns features.
    patches: mapping whose `size` is (height, width) of a patch in pixels.
    num_blocks: depth.
    hidden_dim: width D of the tokens.
    tokens_mlp_dim: hidden width of the MLP across tokens.
    channels_mlp_dim: hidden width of the MLP across channels.
    stochastic_depth_rate: of the last block, as in `blocks.apply_blocks`.
    layer_norm_epsilon: 1e-6 in the released models.
    exact_gelu: whether not to use the tanh approximation.
    remat: as in `blocks.apply_blocks`.
    scan_layers: likewise `scan`.
    head_bias_init: first value of the biases of the head.
    dtype: of the computation; parameters and logits are float32 always.
    model_name: for the reader only.
  """

  num_classes: int | None
  patches: model_configs.ModelConfig
  num_blocks: int
  hidden_dim: int
  tokens_mlp_dim: int
  channels_mlp_dim: int
  stochastic_depth_rate: float = 0.0
  layer_norm_epsilon: float = 1e-6
  exact_gelu: bool = False
  remat: str = ''
  scan_layers: bool = False
  head_bias_init: float = 0.0
  dtype: Any = jnp.float32
  model_name: str | None = None

  @nn.compact
  def __call__(
    self, inputs: Num[ArrayLike, 'B H W C'], *, train: bool
  ) -> Float[Array, 'B K']:
    """Returns float32 logits [B, num_classes] of images in [-1, 1]."""
    x = PatchEmbedding(
      self.hidden_dim,
      tuple(self.patches['size']),
      dtype=self.dtype,
      name='stem',
    )(self._pad(jnp.asarray(inputs)))

    make_block = functools.partial(
      MixerBlock,
      self.tokens_mlp_dim,
      self.channels_mlp_dim,
      layer_norm_epsilon=self.layer_norm_epsilon,
      exact_gelu=self.exact_gelu,
      dtype=self.dtype,
    )
    x = blocks.apply_blocks(
      lambda name: make_block(name=name),
      'MixerBlock',
      x,
      depth=self.num_blocks,
      stochastic_depth_rate=self.stochastic_depth_rate,
      deterministic=not train,
      remat=self.remat,
      scan=self.scan_layers,
    )
    x = LayerNorm(epsilon=self.layer_norm_epsilon, name='pre_head_layer_norm')(
      x
    )
    x = jnp.mean(x, axis=1)
    if self.num_classes:
      x = nn.Dense(
        self.num_classes,
        kernel_init=nn.initializers.zeros,
        bias_init=nn.initializers.constant(self.head_bias_init),
        name='head',
      )(x)
    return x

  def _pad(self, images: Num[Array, 'B H W C']) -> Num[Array, 'B h w C']:
    """Makes the patches whole with zeros, half of them on each side."""
    missing = [
      -n % size
      for n, size in zip(images.shape[1:3], self.patches['size'], strict=True)
    ]
    around = [(n // 2, n - n // 2) for n in missing]
    return jnp.pad(images, ((0, 0), *around, (0, 0)))
