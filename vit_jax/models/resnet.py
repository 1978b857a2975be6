"""ResNet with weight standardisation and group norm, the stem of hybrids.

The ResNet of Big Transfer (arXiv:1912.11370), but with post-activation. Its feature
map replaces the pixels of the image (arXiv:2010.11929, Sec. 3.1, "Hybrid").
"""

from collections.abc import Sequence
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Num

from vit_jax.configs import models as model_configs

Features = Float[Array, 'B _ _ _']


def weight_standardize(
  w: Float[ArrayLike, '...'], axis: Sequence[int] | int, eps: float
) -> Float[Array, '...']:
  """Shifts and scales a kernel to mean 0 and standard deviation 1 along axes."""
  w = jnp.asarray(w)
  w = w - jnp.mean(w, axis, keepdims=True)
  deviation = jnp.sqrt(jnp.mean(jnp.square(w), axis, keepdims=True))
  return w / (deviation + eps)


class StdConv(nn.Module):
  """Convolution with standardised weights (arXiv:1903.10520), no bias."""

  features: int
  kernel_size: tuple[int, int]
  strides: tuple[int, int] = (1, 1)
  dtype: Any = jnp.float32

  @nn.compact
  def __call__(self, x: Num[Array, 'B H W C']) -> Features:
    shape = (*self.kernel_size, x.shape[-1], self.features)
    kernel = self.param('kernel', nn.initializers.lecun_normal(), shape)
    return jax.lax.conv_general_dilated(
      x.astype(self.dtype),
      weight_standardize(kernel, (0, 1, 2), eps=1e-5).astype(self.dtype),
      self.strides,
      'SAME',
      dimension_numbers=('NHWC', 'HWIO', 'NHWC'),
    )


class ResidualUnit(nn.Module):
  """Bottleneck: 1x1, 3x3 and 1x1 convolutions and a residual connection."""

  features: int
  strides: tuple[int, int] = (1, 1)
  dtype: Any = jnp.float32

  @nn.compact
  def __call__(self, x: Features) -> Features:
    conv = functools.partial(StdConv, dtype=self.dtype)
    norm = functools.partial(nn.GroupNorm, dtype=self.dtype)
    wide = 4 * self.features

    residual = x
    if x.shape[-1] != wide or self.strides != (1, 1):
      residual = conv(wide, (1, 1), self.strides, name='conv_proj')(x)
      residual = norm(name='gn_proj')(residual)

    y = nn.relu(norm(name='gn1')(conv(self.features, (1, 1), name='conv1')(x)))
    y = conv(self.features, (3, 3), self.strides, name='conv2')(y)
    y = nn.relu(norm(name='gn2')(y))
    y = conv(wide, (1, 1), name='conv3')(y)
    y = norm(name='gn3', scale_init=nn.initializers.zeros)(y)
    return nn.relu(residual + y)


class ResNetStage(nn.Module):
  """`block_size` units; the first one has the stride."""

  block_size: int
  nout: int
  first_stride: tuple[int, int]
  dtype: Any = jnp.float32

  @nn.compact
  def __call__(self, x: Features) -> Features:
    for i in range(self.block_size):
      strides = self.first_stride if i == 0 else (1, 1)
      x = ResidualUnit(self.nout, strides, self.dtype, name=f'unit{i + 1}')(x)
    return x


def resnet(
  x: Num[Array, 'B H W C'], config: model_configs.ModelConfig, dtype: Any
) -> Features:
  """Applies root and stages, as modules of the module that calls.

  `config.num_layers` has the units of each stage and may be empty;
  `config.width_factor` multiplies the 64 channels of the root.
  """
  width = int(64 * config['width_factor'])
  x = StdConv(width, (7, 7), (2, 2), dtype=dtype, name='conv_root')(x)
  x = nn.relu(nn.GroupNorm(dtype=dtype, name='gn_root')(x))
  # Converters to other formats need keyword arguments.
  x = nn.max_pool(x, window_shape=(3, 3), strides=(2, 2), padding='SAME')
  for i, block_size in enumerate(config['num_layers']):
    stride = (1, 1) if i == 0 else (2, 2)
    x = ResNetStage(
      block_size, width * 2**i, stride, dtype, name=f'block{i + 1}'
    )(x)
  return x
