"""The precision of products, sums and stored activations of a model.

The `dtype` of a model is 'float32', 'bfloat16' or a `Policy`. With 'float32'
everything is float32. With 'bfloat16' every matrix product, forward and backward,
takes bfloat16 factors and returns float32; softmax, LayerNorm, parameters and logits
are float32. Activations between products are bfloat16 on accelerators, which saves
bandwidth, and float32 on CPUs, where bfloat16 is slow except in products. On GPUs, and
where oneDNN multiplies, see `runtime.onednn`, products return bfloat16, rounded from
sums in float32.
"""

from collections.abc import Iterator
import contextlib
import contextvars
import dataclasses
import functools
from typing import Any

import jax
from jax import ad_checkpoint
import jax.numpy as jnp
from jaxtyping import Array, Float
import numpy as np

from vit_jax.runtime import onednn

_Operand = Array | np.ndarray

_PLATFORM = contextvars.ContextVar[str | None]('platform', default=None)
_AS_MATMUL = contextvars.ContextVar('as_matmul', default=False)


@dataclasses.dataclass(frozen=True)
class Policy:
  """Precisions of a computation, as names of dtypes.

  Attributes:
    factors: dtype of the inputs of a matrix product; their sums are float32.
    results: dtype of the output of a matrix product, forward and backward.
    activations: dtype of tokens between layers.
    attention_weights: dtype in which softmax returns attention weights and keeps
      them for its derivative.
    kept_by_norm: what a LayerNorm keeps for its derivative: 'float32' its output,
      'bfloat16' its input, with mean and deviation of each token, from which it
      computes the output again.
    activation_again: whether the derivative of an MLP's activation computes it again
      instead of keeping its parts.
    fused_qkv: whether queries, keys and values come from one product.
  """

  factors: str = 'bfloat16'
  results: str = 'float32'
  activations: str = 'bfloat16'
  attention_weights: str = 'float32'
  kept_by_norm: str = 'float32'
  activation_again: bool = False
  fused_qkv: bool = False


_FLOAT32 = Policy(factors='float32', activations='float32')

# What each is worth for ViT-B/16 is in benchmarks/RESULTS.md, "One NVIDIA H200".
_GPU = Policy(
  results='bfloat16',
  attention_weights='bfloat16',
  kept_by_norm='bfloat16',
  activation_again=True,
)

# Only products that return bfloat16 are oneDNN's.
_ONEDNN = Policy(results='bfloat16')


@contextlib.contextmanager
def compiling_for(platform: str) -> Iterator[None]:
  """Traces models for a platform, 'cpu', 'gpu' or 'tpu', that may not be here."""
  token = _PLATFORM.set(platform)
  try:
    yield
  finally:
    _PLATFORM.reset(token)


@contextlib.contextmanager
def as_matmul() -> Iterator[None]:
  """Traces float32 products as `matmul`, for runtimes that are slow at `einsum`."""
  token = _AS_MATMUL.set(True)
  try:
    yield
  finally:
    _AS_MATMUL.reset(token)


def platform() -> str:
  """Returns the platform that models are traced for."""
  return _PLATFORM.get() or jax.default_backend()


def policy(dtype: Any) -> Policy:
  """Returns the policy that the `dtype` of a model stands for here."""
  if isinstance(dtype, Policy):
    return dtype
  if jnp.dtype(dtype) != jnp.bfloat16:
    return dataclasses.replace(_FLOAT32, activations=jnp.dtype(dtype).name)
  if platform() == 'gpu':
    return _GPU
  if platform() != 'cpu':
    return Policy()
  return _ONEDNN if onednn.is_used() else Policy(activations='float32')


def as_activation(y: Array, dtype: Any, name: str = 'dense') -> Array:
  """Casts the result of a product; `remat` may keep it, by this name."""
  return ad_checkpoint.checkpoint_name(
    y.astype(policy(dtype).activations), name
  )


def einsum(spec: str, x: _Operand, y: _Operand, dtype: Any) -> Array:
  """Returns the product of two operands, in the precision of a model.

  Each letter of `spec` must be in at least two of its three parts.
  """
  how = policy(dtype)
  if how.factors == 'bfloat16':
    return _bfloat16_einsum(spec, how.results, x, y)
  return _matmul(spec, x, y) if _AS_MATMUL.get() else jnp.einsum(spec, x, y)


def _matmul(spec: str, x: _Operand, y: _Operand) -> Array:
  """Returns a product as a `matmul`, with transposes around it."""
  inputs, output = spec.split('->')
  first, second = inputs.split(',')
  if first[:-1] == second[:-1] and output == first[-1] + second[-1]:
    # The gradient of a kernel. XLA would copy what is transposed before `matmul`.
    x, y = x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1])
    return jax.lax.dot_general(x, y, (((0,), (0,)), ((), ())))
  summed = [a for a in first if a in second and a not in output]
  shared = [a for a in output if a in first and a in second]
  rows = [a for a in output if a not in second]
  columns = [a for a in output if a not in first]

  def transposed(operand: _Operand, have: str, want: list[str]) -> _Operand:
    order = [have.index(a) for a in want]
    return operand if have == ''.join(want) else jnp.transpose(operand, order)

  left = transposed(x, first, [*shared, *rows, *summed])
  right = transposed(y, second, [*shared, *summed, *columns])
  if len(summed) > 1:
    left = left.reshape(*left.shape[: -len(summed)], -1)
    right = right.reshape(-1, *right.shape[len(summed) :])
  product = jnp.matmul(left, right)
  have = ''.join([*shared, *rows, *columns])
  return jnp.asarray(transposed(product, have, list(output)))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _bfloat16_einsum(
  spec: str, results: str, x: _Operand, y: _Operand
) -> Array:
  if results == 'bfloat16':
    return _matmul(spec, x.astype(jnp.bfloat16), y.astype(jnp.bfloat16))
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
    preferred_element_type=jnp.dtype(results),
  )


# JAX's own derivative of such a product has bfloat16 results, which are slow on
# CPUs and lose the float32 accumulation.
def _forward(spec, results, x, y):
  x16, y16 = x.astype(jnp.bfloat16), y.astype(jnp.bfloat16)
  # Empty arrays carry the dtypes of the gradients.
  like = (jnp.zeros((0,), x.dtype), jnp.zeros((0,), y.dtype))
  return _bfloat16_einsum(spec, results, x16, y16), (x16, y16, like)


def _backward(spec, results, saved, gradient):
  x, y, (like_x, like_y) = saved
  inputs, output = spec.split('->')
  first, second = inputs.split(',')
  dx = _bfloat16_einsum(f'{output},{second}->{first}', results, gradient, y)
  dy = _bfloat16_einsum(f'{first},{output}->{second}', results, x, gradient)
  return dx.astype(like_x.dtype), dy.astype(like_y.dtype)


_bfloat16_einsum.defvjp(_forward, _backward)


def add_bias(
  y: Float[Array, '*B D'], bias: _Operand, dtype: Any
) -> Float[Array, '*B D']:
  """Adds a bias to the result of a product.

  Where products return bfloat16, so does this, which lets cuBLAS add the bias within the
  product; the gradient of the bias is summed in float32. On CPUs a barrier makes XLA sum
  that before it splits tokens into heads: 0.7 ms instead of 21 where oneDNN multiplies
  (16,384 tokens of width 192).
  """
  if policy(dtype).results == 'bfloat16':
    return _add_bias(platform() == 'cpu', y, jnp.asarray(bias))
  return y + bias


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _add_bias(has_barrier: bool, y: Array, bias: Array) -> Array:
  del has_barrier
  return y + bias.astype(y.dtype)


def _add_bias_forward(has_barrier, y, bias):
  return _add_bias(has_barrier, y, bias), jnp.zeros((0,), bias.dtype)


def _add_bias_backward(has_barrier, like, gradient):
  axes = tuple(range(gradient.ndim - 1))
  whole = gradient
  if has_barrier:
    whole = jax.lax.optimization_barrier(gradient)
  return gradient, jnp.sum(whole, axes, dtype=like.dtype)


_add_bias.defvjp(_add_bias_forward, _add_bias_backward)
