"""BERT's encoder (arXiv:1810.04805), with the parameter names of flaxformer.

The modules are nested like those of flaxformer, because the released LiT weights
have their names.
"""

from collections.abc import Mapping
import functools
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int

Tokens = Float[Array, 'B L D']
Mask = Bool[Array, 'B 1 L L']

SIZES = {  # Sec. 3; LiT uses 'base' and 'large'.
  'base': {
    'hidden_size': 768,
    'intermediate_dim': 3072,
    'num_hidden_layers': 12,
    'num_attention_heads': 12,
  },
  'large': {
    'hidden_size': 1024,
    'intermediate_dim': 4096,
    'num_hidden_layers': 24,
    'num_attention_heads': 16,
  },
}

_KERNEL_INIT = nn.initializers.truncated_normal(stddev=0.02)
_Dense = functools.partial(nn.Dense, kernel_init=_KERNEL_INIT)


class Embedder(nn.Module):
  """Sum of the embeddings of tokens, positions and segments (Fig. 2)."""

  hidden_size: int
  vocab_size: int
  max_length: int
  num_segments: int

  @nn.compact
  def __call__(self, token_ids: Int[Array, 'B L']) -> Tokens:
    def embed(kind: str, size: int, ids: Int[Array, '...']) -> Array:
      name = f'embedders_{kind}_ids'
      table = nn.Embed(
        size, self.hidden_size, embedding_init=_KERNEL_INIT, name=name
      )
      return table(ids)

    tokens = embed('token', self.vocab_size, token_ids)
    places = jnp.arange(token_ids.shape[1])
    positions = embed('position', self.max_length, places)
    # A text is one segment.
    segment = embed('segment', self.num_segments, jnp.zeros((), jnp.int32))
    return tokens + positions + segment


class SelfAttention(nn.Module):
  """Multi-head attention without its output projection; [B, L, N * H]."""

  num_heads: int

  @nn.compact
  def __call__(self, x: Tokens, mask: Mask) -> Tokens:
    def project(name: str) -> Float[Array, 'B L N H']:
      y = _Dense(x.shape[-1], name=name)(x)
      return y.reshape(*x.shape[:2], self.num_heads, -1)

    y = nn.dot_product_attention(
      project('query'), project('key'), project('value'), mask=mask
    )
    return y.reshape(x.shape)


class _Residual(nn.Module):
  """What ends both halves of a layer: Dense, dropout, residual, LayerNorm."""

  dropout_rate: float
  layer_norm_epsilon: float

  def add(
    self, x: Tokens, y: Float[Array, 'B L F'], deterministic: bool
  ) -> Tokens:
    y = _Dense(x.shape[-1], name='dense_layer')(y)
    y = nn.Dropout(self.dropout_rate)(y, deterministic=deterministic)
    return nn.LayerNorm(self.layer_norm_epsilon, name='layer_norm')(x + y)


class AttentionBlock(_Residual):
  """Attention, residual connection, LayerNorm."""

  num_heads: int

  @nn.compact
  def __call__(self, x: Tokens, mask: Mask, *, deterministic: bool) -> Tokens:
    y = SelfAttention(self.num_heads, name='attention_layer')(x, mask)
    return self.add(x, y, deterministic)


class Mlp(nn.Module):
  """The wide half of `MlpBlock`: Dense, gelu."""

  intermediate_dim: int

  @nn.compact
  def __call__(self, x: Tokens) -> Float[Array, 'B L F']:
    return nn.gelu(_Dense(self.intermediate_dim, name='dense_layer')(x))


class MlpBlock(_Residual):
  """MLP, residual connection, LayerNorm."""

  intermediate_dim: int

  @nn.compact
  def __call__(self, x: Tokens, *, deterministic: bool) -> Tokens:
    y = Mlp(self.intermediate_dim, name='mlp')(x)
    return self.add(x, y, deterministic)


class EncoderLayer(nn.Module):
  """Attention and MLP, each followed by LayerNorm."""

  num_heads: int
  intermediate_dim: int
  dropout_rate: float
  layer_norm_epsilon: float

  @nn.compact
  def __call__(self, x: Tokens, mask: Mask, *, deterministic: bool) -> Tokens:
    common = (self.dropout_rate, self.layer_norm_epsilon)
    attention = AttentionBlock(*common, self.num_heads, name='attention_block')
    x = attention(x, mask, deterministic=deterministic)
    mlp = MlpBlock(*common, self.intermediate_dim, name='mlp_block')
    return mlp(x, deterministic=deterministic)


class LayerSequence(nn.Module):
  """The layers, one after the other."""

  num_layers: int
  layer: Mapping[str, Any]

  @nn.compact
  def __call__(self, x: Tokens, mask: Mask, *, deterministic: bool) -> Tokens:
    for i in range(self.num_layers):
      layer = EncoderLayer(name=f'layers_{i}', **self.layer)
      x = layer(x, mask, deterministic=deterministic)
    return x


class EncoderBlock(nn.Module):
  """A name between the encoder and its layers."""

  num_layers: int
  layer: Mapping[str, Any]

  @nn.compact
  def __call__(self, x: Tokens, mask: Mask, *, deterministic: bool) -> Tokens:
    layers = LayerSequence(self.num_layers, self.layer, name='layer_sequence')
    return layers(x, mask, deterministic=deterministic)


class BertEncoder(nn.Module):
  """Token ids to one vector a token. Id 0 is padding, which is not attended to.

  `max_length` is the number of positions. All tokens are in the first segment.
  """

  hidden_size: int
  intermediate_dim: int
  num_hidden_layers: int
  num_attention_heads: int
  vocab_size: int = 30_522
  max_length: int = 512
  num_segments: int = 2
  dropout_rate: float = 0.1
  layer_norm_epsilon: float = 1e-12

  @nn.compact
  def __call__(
    self, token_ids: Int[ArrayLike, 'B L'], *, train: bool
  ) -> Tokens:
    token_ids = jnp.asarray(token_ids)
    embedder = Embedder(
      self.hidden_size,
      self.vocab_size,
      self.max_length,
      self.num_segments,
      name='embedder',
    )
    norm = nn.LayerNorm(self.layer_norm_epsilon, name='layer_norm')
    x = norm(embedder(token_ids))
    x = nn.Dropout(self.dropout_rate)(x, deterministic=not train)
    is_text = token_ids != 0
    mask = nn.make_attention_mask(is_text, is_text, dtype=bool)
    layer = {
      'num_heads': self.num_attention_heads,
      'intermediate_dim': self.intermediate_dim,
      'dropout_rate': self.dropout_rate,
      'layer_norm_epsilon': self.layer_norm_epsilon,
    }
    encoder = EncoderBlock(self.num_hidden_layers, layer, name='encoder_block')
    return encoder(x, mask, deterministic=not train)
