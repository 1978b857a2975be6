"""Attention: heads as matrix products, by XLA or by cuDNN."""

from collections.abc import Callable, Sequence
import math
from typing import Any

import flax.linen as nn
import jax
from jax import ad_checkpoint
import jax.numpy as jnp
from jaxtyping import Array, Float
import numpy as np

from vit_jax.models import arithmetic
from vit_jax.models import layers
from vit_jax.models import normalization
from vit_jax.runtime import sharding


class Projection(nn.Module):
  """Parameters of a projection from (D,) to (N, H) or back, in Flax's shapes.

  `kernel_init` sees the kernel as a matrix.
  """

  inputs: tuple[int, ...]
  outputs: tuple[int, ...]
  kernel_init: Any = layers.LECUN
  use_bias: bool = True

  @nn.compact
  def __call__(self) -> tuple[Float[Array, 'I O'], Float[Array, ' O']]:
    """Returns kernel and bias as a matrix and a vector: faster to multiply."""
    matrix = (math.prod(self.inputs), math.prod(self.outputs))

    def init(key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
      return self.kernel_init(key, matrix, dtype).reshape(shape)

    shape = (*self.inputs, *self.outputs)
    kernel = self.param('kernel', init, shape, jnp.float32)
    kernel = jnp.asarray(kernel).reshape(matrix)
    if not self.use_bias:
      return kernel, jnp.zeros(matrix[1:])
    bias = self.param('bias', layers.ZEROS, self.outputs)
    return kernel, jnp.asarray(bias).reshape(-1)


# 'cudnn' does not keep the weights [B, N, L, L] in memory.
ATTENTION = ('xla', 'cudnn')


def is_by_cudnn(
  module: nn.Module, implementation: str, dropout_rate: float, train: bool
) -> bool:
  """Whether cuDNN computes attention in this call of a module.

  cuDNN cannot drop or return weights; parameters are initialised with XLA's attention.
  """
  drops = train and dropout_rate > 0
  sows = module.is_mutable_collection('intermediates')
  return implementation == 'cudnn' and not (
    drops or sows or module.is_initializing()
  )


def pad_to_even(x: Float[Array, 'B L ...']) -> Float[Array, 'B M ...']:
  """Appends a token of zeros to an odd number: cuDNN's attention wants it even."""
  return jnp.pad(x, [(0, 0), (0, x.shape[1] % 2)] + [(0, 0)] * (x.ndim - 2))


def _attend_by_cudnn(
  query: Float[Array, 'B L N H'],
  key: Float[Array, 'B M N H'],
  value: Float[Array, 'B M N H'],
  *,
  masked: int,
  causal: bool,
) -> Float[Array, 'B L N H']:
  """Returns the attention output, computed by cuDNN, without the last `masked` keys.

  Pads odd numbers of tokens, see `pad_to_even`: some versions of JAX refuse to
  differentiate them.
  """
  padded, keys = pad_to_even(query), pad_to_even(key)
  read = key.shape[1] - masked

  def lengths(count: int) -> Array | None:
    if read == keys.shape[1]:
      return None
    # The lengths must be split over devices like the batch.
    return sharding.split_batch(jnp.full(query.shape[:1], count, jnp.int32))

  y = jax.nn.dot_product_attention(
    padded,
    keys,
    pad_to_even(value),
    is_causal=causal,
    query_seq_lengths=lengths(padded.shape[1]),
    key_value_seq_lengths=lengths(read),
    implementation='cudnn',
  )
  return y[:, : query.shape[1]]


class MultiHeadDotProductAttention(nn.Module):
  """Attention (arXiv:1706.03762, Sec. 3.2.2) of tokens to themselves or to others.

  The weights [B, N, L, M] are sown as `attention_weights`, before dropout; Flax
  drops them unless `mutable='intermediates'`. With dropout, when the weights are
  asked for, or to initialise parameters, 'xla' replaces any other implementation.

  Attributes:
    num_heads: N; each has width D / N.
    dropout_rate: share of the weights that are dropped.
    kernel_init: initializer of the four projections.
    implementation: one of `ATTENTION`.
    dtype: precision of the computation, see `layers`.
    biases: projections with a bias, by their letters in 'qkv'.
    rotary: rotates queries and keys by their positions.
    causal: whether a token sees only itself and those before it.
    masked: number of last tokens that none sees.
  """

  num_heads: int
  dropout_rate: float = 0.0
  kernel_init: Any = layers.LECUN
  implementation: str = 'xla'
  dtype: Any = jnp.float32
  biases: str = 'qkv'
  rotary: Callable[[Array], Array] | None = None
  causal: bool = False
  masked: int = 0

  @nn.compact
  def __call__(
    self,
    x: Float[Array, 'B L D'],
    context: Float[Array, 'B M D'] | None = None,
    *,
    deterministic: bool,
  ) -> Float[Array, 'B L D']:
    """Returns what the tokens `x` read from `context`, by default themselves."""
    width, heads = x.shape[-1], self.num_heads
    split = (heads, width // heads)
    tokens = x if context is None else context
    if context is None and arithmetic.policy(self.dtype).fused_qkv:
      query, key, value = self._project(('query', 'key', 'value'), x)
    else:
      [query] = self._project(('query',), x)
      [key] = self._project(('key',), tokens)
      [value] = self._project(('value',), tokens)
    if self.rotary is not None:
      query, key = self.rotary(query), self.rotary(key)
    train = not deterministic
    if is_by_cudnn(self, self.implementation, self.dropout_rate, train):
      y = _attend_by_cudnn(
        query, key, value, masked=self.masked, causal=self.causal
      )
    else:
      y = self._attend(query, key, value, train and self.dropout_rate > 0)
    y = arithmetic.as_activation(y, self.dtype, 'attention').reshape(x.shape)
    kernel, bias = Projection(split, (width,), self.kernel_init, name='out')()
    y = arithmetic.einsum('bld,de->ble', y, kernel, self.dtype)
    y = arithmetic.add_bias(y, bias, self.dtype)
    return arithmetic.as_activation(y, self.dtype)

  def _project(
    self, names: Sequence[str], x: Float[Array, 'B M D']
  ) -> list[Float[Array, 'B M N H']]:
    """Returns projections of tokens, all from one product."""
    width, heads = x.shape[-1], self.num_heads
    split = (heads, width // heads)
    kernels, biases = zip(
      *(
        Projection(
          (width,), split, self.kernel_init, name[0] in self.biases, name=name
        )()
        for name in names
      ),
      strict=True,
    )
    kernel = jnp.concatenate(kernels, axis=1)
    bias = jnp.concatenate(biases)
    y = arithmetic.einsum('bld,de->ble', x, kernel, self.dtype)
    y = arithmetic.as_activation(
      arithmetic.add_bias(y, bias, self.dtype), self.dtype
    )
    parts = jnp.split(y, len(names), axis=-1)
    return [part.reshape(*x.shape[:2], *split) for part in parts]

  def _attend(
    self,
    query: Float[Array, 'B L N H'],
    key: Float[Array, 'B M N H'],
    value: Float[Array, 'B M N H'],
    drops: bool,
  ) -> Float[Array, 'B L N H']:
    query = query / np.sqrt(query.shape[-1]).astype(query.dtype)
    logits = arithmetic.einsum('blnh,bmnh->bnlm', query, key, self.dtype)
    logits = ad_checkpoint.checkpoint_name(logits, 'attention')
    if self.causal:
      logits = jnp.where(np.tri(*logits.shape[-2:]) > 0, logits, -np.inf)
    if self.masked:
      seen = np.arange(logits.shape[-1]) < logits.shape[-1] - self.masked
      logits = jnp.where(seen, logits, -np.inf)
    weights = normalization.softmax(logits, self.dtype)
    self.sow('intermediates', 'attention_weights', weights)
    if drops:
      keep = 1.0 - self.dropout_rate
      kept = jax.random.bernoulli(self.make_rng('dropout'), keep, weights.shape)
      weights = weights * (kept / keep)
    return arithmetic.einsum('bnlm,bmnh->blnh', weights, value, self.dtype)
