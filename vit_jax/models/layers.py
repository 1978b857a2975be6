"""Dense layers, LayerNorm, patches and heads, in the precision of a model.

Their `dtype` is one of `arithmetic`.
"""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Num

from vit_jax.models import arithmetic
from vit_jax.models import normalization

Tokens = Float[Array, 'B L D']

LECUN = nn.initializers.lecun_normal()
ZEROS = nn.initializers.zeros


def head(num_classes: int, bias_init: float, name: str = 'head') -> nn.Dense:
  """Returns the last layer of a classifier, whose kernel starts at zero."""
  return nn.Dense(
    num_classes,
    kernel_init=ZEROS,
    bias_init=nn.initializers.constant(bias_init),
    name=name,
  )


class Dense(nn.Module):
  """A linear layer on the last axis."""

  features: int
  kernel_init: Any = LECUN
  bias_init: Any = ZEROS
  dtype: Any = jnp.float32

  @nn.compact
  def __call__(self, x: Float[Array, 'B M K']) -> Float[Array, 'B M F']:
    kernel = self.param(
      'kernel', self.kernel_init, (x.shape[-1], self.features)
    )
    bias = self.param('bias', self.bias_init, (self.features,))
    y = arithmetic.einsum('bmk,kf->bmf', x, kernel, self.dtype)
    y = arithmetic.add_bias(y, bias, self.dtype)
    return arithmetic.as_activation(y, self.dtype)


class LayerNorm(nn.Module):
  """Normalises the last axis in float32, then scales and shifts."""

  epsilon: float = 1e-6
  dtype: Any = jnp.float32

  @nn.compact
  def __call__(self, x: Float[Array, '*B D']) -> Float[Array, '*B D']:
    scale = self.param('scale', nn.initializers.ones, (x.shape[-1],))
    bias = self.param('bias', ZEROS, (x.shape[-1],))
    y = normalization.normalize(x, self.epsilon, self.dtype) * scale + bias
    return y.astype(arithmetic.policy(self.dtype).activations)


class PatchEmbedding(nn.Module):
  """Convolves patches that do not overlap, in one matrix product (Eq. 1).

  Pixels right of and below the last whole patch are not read.
  """

  features: int
  patch_size: tuple[int, int]
  dtype: Any = jnp.float32
  use_bias: bool = True

  @nn.compact
  def __call__(self, images: Num[Array, 'B H W C']) -> Tokens:
    (height, width), channels = self.patch_size, images.shape[-1]
    shape = (height, width, channels, self.features)
    kernel = self.param('kernel', LECUN, shape)
    rows, columns = images.shape[1] // height, images.shape[2] // width
    x = images[:, : rows * height, : columns * width]
    x = x.reshape(-1, rows, height, columns, width, channels)
    x = x.swapaxes(2, 3).reshape(x.shape[0], rows * columns, -1)
    kernel = kernel.reshape(-1, self.features)
    y = arithmetic.einsum('blk,kd->bld', x, kernel, self.dtype)
    if self.use_bias:
      bias = self.param('bias', ZEROS, (self.features,))
      y = arithmetic.add_bias(y, bias, self.dtype)
    return y.astype(arithmetic.policy(self.dtype).activations)
