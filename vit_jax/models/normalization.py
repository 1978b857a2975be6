"""Softmax and LayerNorm's normalisation, and what their derivatives keep."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vit_jax.models import arithmetic


def softmax(logits: Float[Array, '*B M'], dtype: Any) -> Float[Array, '*B M']:
  """Returns attention weights of the last axis, computed in float32."""
  weights = arithmetic.policy(dtype).attention_weights
  if weights == 'float32':
    return jax.nn.softmax(logits.astype(jnp.float32))
  return _small_softmax(logits, weights)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _small_softmax(logits: Array, dtype: str) -> Array:
  return jax.nn.softmax(logits.astype(jnp.float32)).astype(dtype)


def _small_softmax_forward(logits, dtype):
  weights = _small_softmax(logits, dtype)
  return weights, (weights, jnp.zeros((0,), logits.dtype))


def _small_softmax_backward(dtype, saved, gradient):
  del dtype
  weights, like = saved
  weights = weights.astype(jnp.float32)
  product = weights * gradient.astype(jnp.float32)
  total = jnp.sum(product, axis=-1, keepdims=True)
  return ((product - weights * total).astype(like.dtype),)


_small_softmax.defvjp(_small_softmax_forward, _small_softmax_backward)


def normalize(
  x: Float[Array, '*B D'], epsilon: float, dtype: Any
) -> Float[Array, '*B D']:
  """Returns float32 numbers of mean 0 and variance 1 along the last axis."""
  return _normalize(
    x, epsilon, arithmetic.policy(dtype).kept_by_norm == 'float32'
  )


# A derivative of few operations: XLA fuses the one that JAX makes across layers,
# which doubles the time of a step on CPUs and of its compilation.
@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _normalize(x: Array, epsilon: float, keeps_output: bool) -> Array:
  del keeps_output
  return _scaled(x, _moments(x, epsilon))


def _moments(x: Array, epsilon: float) -> tuple[Array, Array]:
  """Returns the mean of the last axis, and one over its standard deviation."""
  x = x.astype(jnp.float32)
  mean = jnp.mean(x, axis=-1, keepdims=True)
  variance = jnp.mean(jnp.square(x - mean), axis=-1, keepdims=True)
  return mean, jax.lax.rsqrt(variance + epsilon)


def _scaled(x: Array, moments: tuple[Array, Array]) -> Array:
  mean, inverse = moments
  return (x.astype(jnp.float32) - mean) * inverse


def _normalize_forward(x, epsilon, keeps_output):
  moments = _moments(x, epsilon)
  y = _scaled(x, moments)
  if keeps_output:
    kept = y, moments
  else:
    # Without the barrier XLA computes the moments again in the backward pass, and
    # writes the output to memory in float32 to sum the gradient of the scale.
    kept = x.astype(jnp.bfloat16), jax.lax.optimization_barrier(moments)
  return y, (kept, jnp.zeros((0,), x.dtype))


def _normalize_backward(epsilon, keeps_output, saved, gradient):
  del epsilon
  (kept, moments), like = saved
  y = kept if keeps_output else _scaled(kept, moments)
  _, inverse = moments
  mean = jnp.mean(gradient, axis=-1, keepdims=True)
  slope = jnp.mean(gradient * y, axis=-1, keepdims=True)
  return ((inverse * (gradient - mean - y * slope)).astype(like.dtype),)


_normalize.defvjp(_normalize_forward, _normalize_backward)
