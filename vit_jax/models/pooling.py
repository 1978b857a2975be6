"""From tokens to the features that the head reads."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from vit_jax.configs import models as model_configs
from vit_jax.configs import spec
from vit_jax.models import attention as attention_lib
from vit_jax.models import layers
from vit_jax.models import parts

Tokens = Float[Array, 'B L D']


def pool(
  x: Tokens,
  what: spec.ModelSpec,
  encoder: model_configs.ModelConfig,
  dtype: Any,
) -> Float[Array, 'B ...']:
  """Returns features [B, D], the tokens if they are not pooled.

  'token' takes the class token, 'gap' the mean of the patches, 'map' attention to
  them, 'unpooled' all tokens; 'token_gap', 'token_map' and 'token_unpooled' do so
  in models with a class token; 'token_mean' joins class token and mean, [B, 2 D].

  Args:
    x: all tokens, in float32, which features have too.
    what: the model.
    encoder: arguments of its `Encoder`, which attention shares.
    dtype: precision of the computation.
  """
  patches = x[:, what.num_prefix_tokens :]
  if what.pooling == 'token':
    return x[:, 0]
  if what.pooling in ('gap', 'token_gap'):
    return jnp.mean(patches, axis=1)
  if what.pooling == 'token_mean':
    return jnp.concatenate([x[:, 0], jnp.mean(patches, axis=1)], axis=-1)
  if what.pooling in ('map', 'token_map'):
    head = MAPHead(
      mlp_dim=encoder['mlp_dim'],
      num_heads=encoder['num_heads'],
      layer_norm_epsilon=encoder.get('layer_norm_epsilon', 1e-6),
      exact_gelu=encoder.get('exact_gelu', False),
      activation=encoder.get('block', {}).get('activation', 'gelu'),
      dtype=dtype,
    )
    return head(patches).astype(jnp.float32)
  return x


class MAPHead(nn.Module):
  """Pools tokens by attention of one learned query (arXiv:2106.04560, Sec. 3.2).

  An MLP with a residual connection follows.
  """

  mlp_dim: int
  num_heads: int
  layer_norm_epsilon: float = 1e-6
  exact_gelu: bool = False
  activation: str = 'gelu'
  dtype: Any = jnp.float32

  @nn.compact
  def __call__(self, x: Tokens) -> Float[Array, 'B D']:
    shape = (1, 1, x.shape[-1])
    probe = self.param('probe', parts.KERNEL_INIT, shape)
    probe = jnp.tile(jnp.asarray(probe).astype(x.dtype), (x.shape[0], 1, 1))
    attention = attention_lib.MultiHeadDotProductAttention(
      self.num_heads, kernel_init=parts.KERNEL_INIT, dtype=self.dtype
    )
    y = attention(probe, x, deterministic=True)
    z = layers.LayerNorm(self.layer_norm_epsilon, self.dtype)(y)
    mlp = parts.MlpBlock(
      self.mlp_dim,
      dropout_rate=0.0,
      exact_gelu=self.exact_gelu,
      dtype=self.dtype,
      activation=self.activation,
    )
    return (y + mlp(z, deterministic=True))[:, 0]
