"""Matrix products, dense layers and LayerNorm, in the precision of a model.

The `dtype` of a model decides the precision. With 'float32' everything is float32.
With 'bfloat16' every matrix product, forward and backward, takes bfloat16 inputs
and accumulates in float32; softmax, LayerNorm, parameters and logits are float32.
Activations between products are bfloat16 on accelerators, which saves bandwidth,
and float32 on CPUs, where bfloat16 is slow except in products.
"""

from collections.abc import Iterator
import contextlib
import contextvars
import functools
from typing import Any

import flax.linen as nn
import jax
from jax import ad_checkpoint
import jax.numpy as jnp
from jaxtyping import Array, Float, Num
import numpy as np

Tokens = Float[Array, 'B L D']
_Operand = Array | np.ndarray

LECUN = nn.initializers.lecun_normal()
ZEROS = nn.initializers.zeros

_PLATFORM = contextvars.ContextVar[str | None]('platform', default=None)


@contextlib.contextmanager
def compiling_for(platform: str) -> Iterator[None]:
  """Traces models for a platform, 'cpu', 'gpu' or 'tpu', that may not be here."""
  token = _PLATFORM.set(platform)
  try:
    yield
  finally:
    _PLATFORM.reset(token)


def activation_dtype(dtype: Any) -> Any:
  """Returns the dtype of activations between products."""
  dtype = jnp.dtype(dtype)
  platform = _PLATFORM.get() or jax.default_backend()
  if dtype == jnp.bfloat16 and platform == 'cpu':
    return jnp.dtype(jnp.float32)
  return dtype


def as_activation(y: Array, dtype: Any, name: str = 'dense') -> Array:
  """Casts the result of a product; `remat` may keep it, by this name."""
  return ad_checkpoint.checkpoint_name(y.astype(activation_dtype(dtype)), name)


def einsum(spec: str, x: _Operand, y: _Operand, dtype: Any) -> Array:
  """Returns the float32 product of two operands, in the precision of a model.

  Each letter of `spec` must be in at least two of its three parts.
  """
  if jnp.dtype(dtype) == jnp.bfloat16:
    return _bfloat16_einsum(spec, x, y)
  return jnp.einsum(spec, x, y)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _bfloat16_einsum(spec: str, x: _Operand, y: _Operand) -> Array:
  inputs, output = spec.split('->')
  first, second = inputs.split(',')
  free = [
    min(map(output.find, set(a) - set(b)))
    for a, b in ((first, second), (second, first))
  ]
  if free[0] > free[1]:
    # XLA's CPU backend cannot transpose the result of such a product.
    first, second, x, y = second, first, y, x
  return jnp.einsum(
    f'{first},{second}->{output}',
    x.astype(jnp.bfloat16),
    y.astype(jnp.bfloat16),
    preferred_element_type=jnp.float32,
  )


# JAX's own derivative of such a product has bfloat16 results, which are slow on
# CPUs and lose the float32 accumulation.
def _forward(spec, x, y):
  x16, y16 = x.astype(jnp.bfloat16), y.astype(jnp.bfloat16)
  # Empty arrays carry the dtypes of the gradients.
  like = (jnp.zeros((0,), x.dtype), jnp.zeros((0,), y.dtype))
  return _bfloat16_einsum(spec, x16, y16), (x16, y16, like)


def _backward(spec, saved, gradient):
  x, y, (like_x, like_y) = saved
  inputs, output = spec.split('->')
  first, second = inputs.split(',')
  dx = _bfloat16_einsum(f'{output},{second}->{first}', gradient, y)
  dy = _bfloat16_einsum(f'{first},{output}->{second}', x, gradient)
  return dx.astype(like_x.dtype), dy.astype(like_y.dtype)


_bfloat16_einsum.defvjp(_forward, _backward)


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
    y = einsum('bmk,kf->bmf', x, kernel, self.dtype) + bias
    return as_activation(y, self.dtype)


class LayerNorm(nn.Module):
  """Normalises the last axis in float32, then scales and shifts."""

  epsilon: float = 1e-6
  dtype: Any = jnp.float32

  @nn.compact
  def __call__(self, x: Float[Array, '*B D']) -> Float[Array, '*B D']:
    scale = self.param('scale', nn.initializers.ones, (x.shape[-1],))
    bias = self.param('bias', ZEROS, (x.shape[-1],))
    y = _normalize(x, self.epsilon) * scale + bias
    return y.astype(activation_dtype(self.dtype))


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _normalize(x: Array, epsilon: float) -> Array:
  return _normalize_forward(x, epsilon)[0]


# A derivative of few operations: XLA fuses the one that JAX makes across layers,
# which doubles the time of a step on CPUs and of its compilation.
def _normalize_forward(x, epsilon):
  x32 = x.astype(jnp.float32)
  centred = x32 - jnp.mean(x32, axis=-1, keepdims=True)
  variance = jnp.mean(centred * centred, axis=-1, keepdims=True)
  inverse = jax.lax.rsqrt(variance + epsilon)
  y = centred * inverse
  return y, (y, inverse, jnp.zeros((0,), x.dtype))


def _normalize_backward(epsilon, saved, gradient):
  del epsilon
  y, inverse, like = saved
  mean = jnp.mean(gradient, axis=-1, keepdims=True)
  slope = jnp.mean(gradient * y, axis=-1, keepdims=True)
  return ((inverse * (gradient - mean - y * slope)).astype(like.dtype),)


_normalize.defvjp(_normalize_forward, _normalize_backward)


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
    y = einsum('blk,kd->bld', x, kernel, self.dtype)
    if self.use_bias:
      y = y + self.param('bias', ZEROS, (self.features,))
    return y.astype(activation_dtype(self.dtype))
