"""MLP-Mixer (arXiv:2105.01601), with the official parameter names."""

import functools
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Num

from vit_jax.configs import models as model_configs
from vit_jax.models import blocks
from vit_jax.models import layers
from vit_jax.models import parts

Tokens = Float[Array, 'B L D']


class MlpBlock(nn.Module):
  """Dense, gelu, Dense, along the last axis."""

  mlp_dim: int
  exact_gelu: bool = False
  dtype: Any = jnp.float32

  @nn.compact
  def __call__(self, x: Float[Array, 'B M N']) -> Float[Array, 'B M N']:
    y = layers.Dense(self.mlp_dim, dtype=self.dtype)(x)
    y = parts.activation('gelu', self.exact_gelu, self.dtype)(y)
    return layers.Dense(x.shape[-1], dtype=self.dtype)(y)


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
    norm = functools.partial(
      layers.LayerNorm, epsilon=self.layer_norm_epsilon, dtype=self.dtype
    )
    mlp = functools.partial(
      MlpBlock, exact_gelu=self.exact_gelu, dtype=self.dtype
    )
    drop_branch = functools.partial(
      blocks.drop_branch,
      self,
      rate=stochastic_depth_rate,
      deterministic=deterministic,
    )
    y = norm()(x).swapaxes(1, 2)
    y = mlp(self.tokens_mlp_dim, name='token_mixing')(y).swapaxes(1, 2)
    x = x + drop_branch(y)
    y = mlp(self.channels_mlp_dim, name='channel_mixing')(norm()(x))
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
    stochastic_depth_rate: rate of the last block, see `blocks.apply_blocks`.
    layer_norm_epsilon: 1e-6 in the released models.
    exact_gelu: whether GELU is exact instead of the tanh approximation.
    remat: '' or a name in `blocks.REMAT_POLICIES`.
    scan_layers: whether the parameters of the blocks are stacked.
    head_bias_init: initial value of the biases of the head.
    dtype: precision of the computation; parameters and logits are always float32.
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
    patch_size = tuple(self.patches['size'])
    x = self._pad(jnp.asarray(inputs), patch_size)
    x = layers.PatchEmbedding(
      self.hidden_dim, patch_size, self.dtype, name='stem'
    )(x)
    make_block = functools.partial(
      MixerBlock,
      tokens_mlp_dim=self.tokens_mlp_dim,
      channels_mlp_dim=self.channels_mlp_dim,
      layer_norm_epsilon=self.layer_norm_epsilon,
      exact_gelu=self.exact_gelu,
      dtype=self.dtype,
    )
    x = blocks.apply_blocks(
      make_block,
      'MixerBlock',
      x,
      depth=self.num_blocks,
      stochastic_depth_rate=self.stochastic_depth_rate,
      deterministic=not train,
      remat=self.remat,
      scan=self.scan_layers,
    )
    norm = layers.LayerNorm(self.layer_norm_epsilon, name='pre_head_layer_norm')
    x = jnp.mean(norm(x), axis=1)
    if self.num_classes:
      x = layers.head(self.num_classes, self.head_bias_init)(x)
    return x

  def _pad(
    self, images: Num[Array, 'B H W C'], patch_size: tuple[int, int]
  ) -> Num[Array, 'B h w C']:
    """Completes the patches with zeros, half of them on each side."""
    missing = [
      -images.shape[1] % patch_size[0],
      -images.shape[2] % patch_size[1],
    ]
    around = [(n // 2, n - n // 2) for n in missing]
    return jnp.pad(images, ((0, 0), *around, (0, 0)))
