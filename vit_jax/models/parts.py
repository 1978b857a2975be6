"""Parts of the Vision Transformer, those of papers after 2021 among them."""

from collections.abc import Callable, Mapping
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vit_jax.models import arithmetic
from vit_jax.models import layers

Tokens = Float[Array, 'B L D']

KERNEL_INIT = nn.initializers.xavier_uniform()
_BIAS_INIT = nn.initializers.normal(stddev=1e-6)


class IdentityLayer(nn.Module):
  """Gives its input a name, by which `capture_intermediates` finds it."""

  @nn.compact
  def __call__(self, x: Array) -> Array:
    return x


class MlpBlock(nn.Module):
  """Dense, gelu, Dense, on each token alone (Sec. 3.1)."""

  mlp_dim: int
  dropout_rate: float = 0.1
  exact_gelu: bool = False
  dtype: Any = jnp.float32
  out_dim: int | None = None  # None: as wide as the input.
  kernel_init: Callable[..., Any] = KERNEL_INIT
  bias_init: Callable[..., Any] = _BIAS_INIT
  activation: str = 'gelu'  # One of `spec.ACTIVATIONS`.

  @nn.compact
  def __call__(
    self, x: Tokens, *, deterministic: bool
  ) -> Float[Array, 'B L _']:
    dense = functools.partial(
      layers.Dense,
      kernel_init=self.kernel_init,
      bias_init=self.bias_init,
      dtype=self.dtype,
    )
    inputs = [dense(self.mlp_dim)(x)]
    if self.activation == 'swiglu':
      inputs.append(dense(self.mlp_dim, name='gate')(x))
    h_BLF = activation(self.activation, self.exact_gelu, self.dtype)(*inputs)
    # One Dropout module for each place: the name is part of its random stream.
    h_BLF = nn.Dropout(self.dropout_rate)(h_BLF, deterministic=deterministic)
    y = dense(self.out_dim or x.shape[-1])(h_BLF)
    return nn.Dropout(self.dropout_rate)(y, deterministic=deterministic)


def activation(
  name: str, exact_gelu: bool, dtype: Any
) -> Callable[..., Float[Array, 'B L F']]:
  """Returns an activation of `spec.ACTIVATIONS`; 'swiglu' takes two arrays."""
  function = functools.partial(_activate, name, exact_gelu)
  again = arithmetic.policy(dtype).activation_again
  return jax.checkpoint(function) if again else function


def _activate(
  name: str,
  exact_gelu: bool,
  x: Float[Array, 'B L F'],
  gate: Float[Array, 'B L F'] | None = None,
) -> Float[Array, 'B L F']:
  if gate is not None:  # arXiv:2002.05202
    return nn.silu(gate) * x
  if name == 'quick_gelu':  # CLIP's approximation.
    return x * jax.nn.sigmoid(1.702 * x)
  return nn.gelu(x, approximate=not exact_gelu)


class LayerScale(nn.Module):
  """Multiplies each channel by a learned number (arXiv:2103.17239, Sec. 2.1)."""

  initial: float

  @nn.compact
  def __call__(self, x: Tokens) -> Tokens:
    init = nn.initializers.constant(self.initial)
    scale = self.param('scale', init, (x.shape[-1],))
    return x * jnp.asarray(scale).astype(x.dtype)


def with_tokens(
  module: nn.Module, tokens: Mapping[str, int], x: Tokens
) -> Float[Array, 'B T D']:
  """Returns learned tokens, by name and number, before those of the patches."""
  shape = (x.shape[0], 1, 1)
  init = nn.initializers.zeros
  learned = [
    module.param(name, init, (1, number, x.shape[-1]))
    for name, number in tokens.items()
    if number
  ]
  tiled = [jnp.tile(jnp.asarray(t).astype(x.dtype), shape) for t in learned]
  return jnp.concatenate([*tiled, x], axis=1) if tiled else x
