"""BERT's encoder (arXiv:1810.04805), with the parameter names of flaxformer.

The modules are nested like those of flaxformer, because the released LiT weights
have their names.
"""

from collections.abc import Callable
import functools
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from vit_jax.models import blocks
from vit_jax.runtime import errors

Tokens = Float[Array, 'B L D']
Mask = Bool[Array, 'B 1 L L']

_FIELDS = (
  'hidden_size',
  'intermediate_dim',
  'num_hidden_layers',
  'num_attention_heads',
)
SIZES = {  # Sec. 3
  'base': dict(zip(_FIELDS, (768, 3072, 12, 12), strict=True)),
  'large': dict(zip(_FIELDS, (1024, 4096, 24, 16), strict=True)),
}

_NUM_SEGMENTS = 2

_KERNEL_INIT = nn.initializers.truncated_normal(stddev=0.02)
_Dense = functools.partial(nn.Dense, kernel_init=_KERNEL_INIT)
_LayerNorm = functools.partial(nn.LayerNorm, epsilon=1e-12, name='layer_norm')


class Embedder(nn.Module):
  """Sum of the embeddings of tokens, positions and segments (Fig. 2)."""

  hidden_size: int
  vocab_size: int
  max_length: int

  @nn.compact
  def __call__(self, token_ids: Int[Array, 'B L']) -> Tokens:
    def embed(kind: str, size: int, ids: Int[Array, '...']) -> Array:
      name = f'embedders_{kind}_ids'
      table = nn.Embed(
        size, self.hidden_size, embedding_init=_KERNEL_INIT, name=name
      )
      return table(ids)

    tokens = embed('token', self.vocab_size, token_ids)
    length = token_ids.shape[1]
    if length > self.max_length:
      raise errors.UserError(
        f'Texts have {length} tokens, but the text tower only {self.max_length}'
        f' positions. Lower config.model.pp.max_len.'
      )
    places = jnp.arange(length)
    positions = embed('position', self.max_length, places)
    # A text is one segment.
    segment = embed('segment', _NUM_SEGMENTS, jnp.zeros((), jnp.int32))
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
  """The end of both halves of a layer: Dense, dropout, residual, LayerNorm."""

  dropout_rate: float

  def add(
    self, x: Tokens, y: Float[Array, 'B L F'], deterministic: bool
  ) -> Tokens:
    y = _Dense(x.shape[-1], name='dense_layer')(y)
    y = nn.Dropout(self.dropout_rate)(y, deterministic=deterministic)
    return _LayerNorm()(x + y)


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

  @nn.compact
  def __call__(
    self, x: Tokens, no_rate: None, mask: Mask, *, deterministic: bool
  ) -> Tokens:
    del no_rate  # Only ViTs and Mixers have stochastic depth.
    rate = self.dropout_rate
    attention = AttentionBlock(rate, self.num_heads, name='attention_block')
    x = attention(x, mask, deterministic=deterministic)
    mlp = MlpBlock(rate, self.intermediate_dim, name='mlp_block')
    return mlp(x, deterministic=deterministic)


class LayerSequence(nn.Module):
  """The layers, one after the other."""

  num_layers: int
  make_layer: Callable[..., EncoderLayer]
  remat: str = ''
  scan_layers: bool = False

  @nn.compact
  def __call__(self, x: Tokens, mask: Mask, *, deterministic: bool) -> Tokens:
    return blocks.apply_blocks(
      self.make_layer,
      'layers',
      x,
      mask,
      depth=self.num_layers,
      deterministic=deterministic,
      remat=self.remat,
      scan=self.scan_layers,
    )


class EncoderBlock(nn.Module):
  """A name between the encoder and its layers."""

  make_layers: Callable[..., LayerSequence]

  @nn.compact
  def __call__(self, *args: Any, **kwargs: Any) -> Tokens:
    return self.make_layers(name='layer_sequence')(*args, **kwargs)


class BertEncoder(nn.Module):
  """Token ids to one vector a token. Id 0 is padding, which is not attended to.

  `max_length` is the number of positions. All tokens are in the first segment.
  `remat` and `scan_layers` are arguments of `blocks.apply_blocks`.
  """

  hidden_size: int
  intermediate_dim: int
  num_hidden_layers: int
  num_attention_heads: int
  vocab_size: int = 30_522
  max_length: int = 512
  dropout_rate: float = 0.1
  remat: str = ''
  scan_layers: bool = False

  @nn.compact
  def __call__(
    self, token_ids: Int[ArrayLike, 'B L'], *, train: bool
  ) -> Tokens:
    token_ids = jnp.asarray(token_ids)
    embedder = Embedder(
      self.hidden_size, self.vocab_size, self.max_length, name='embedder'
    )
    x = _LayerNorm()(embedder(token_ids))
    x = nn.Dropout(self.dropout_rate)(x, deterministic=not train)
    is_text = token_ids != 0
    mask = nn.make_attention_mask(is_text, is_text, dtype=bool)
    make_layer = functools.partial(
      EncoderLayer,
      self.num_attention_heads,
      self.intermediate_dim,
      self.dropout_rate,
    )
    make_layers = functools.partial(
      LayerSequence,
      self.num_hidden_layers,
      make_layer,
      self.remat,
      self.scan_layers,
    )
    encoder = EncoderBlock(make_layers, name='encoder_block')
    return encoder(x, mask, deterministic=not train)
