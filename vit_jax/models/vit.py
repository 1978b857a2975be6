"""Vision Transformer (arXiv:2010.11929), with the official parameter names.

An image is cut into patches. Each becomes a token, a vector of width D (Eq. 1);
equal blocks of attention and MLP change the tokens (Eq. 2, 3), and the head reads
classes from the class token or from the mean of all (Eq. 4).

Letters in shapes: B batch, L tokens, D width, F mlp, N heads, H W C image.
"""

from collections.abc import Callable
import functools
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Num

from vit_jax.configs import models as model_configs
from vit_jax.configs import spec
from vit_jax.models import blocks
from vit_jax.models import layers
from vit_jax.models import resnet as resnet_lib

Tokens = Float[Array, 'B L D']

_KERNEL_INIT = nn.initializers.xavier_uniform()
_BIAS_INIT = nn.initializers.normal(stddev=1e-6)

CLASSIFIERS = ('token', 'gap', 'token_gap', 'unpooled', 'token_unpooled')


class IdentityLayer(nn.Module):
  """Gives its input a name, by which `capture_intermediates` finds it."""

  @nn.compact
  def __call__(self, x: Array) -> Array:
    return x


class AddPositionEmbs(nn.Module):
  """Adds learned position embeddings, one vector a token (Eq. 1)."""

  posemb_init: Callable[..., Any] = nn.initializers.normal(stddev=0.02)

  @nn.compact
  def __call__(self, inputs: Tokens) -> Tokens:
    shape = (1, *inputs.shape[1:])
    embeddings = self.param('pos_embedding', self.posemb_init, shape)
    return inputs + embeddings.astype(inputs.dtype)


class MlpBlock(nn.Module):
  """Dense, gelu, Dense, on each token alone (Sec. 3.1)."""

  mlp_dim: int
  dropout_rate: float = 0.1
  exact_gelu: bool = False
  dtype: Any = jnp.float32
  out_dim: int | None = None  # None: as wide as the input.
  kernel_init: Callable[..., Any] = _KERNEL_INIT
  bias_init: Callable[..., Any] = _BIAS_INIT

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
    h_BLF = nn.gelu(dense(self.mlp_dim)(x), approximate=not self.exact_gelu)
    # One Dropout module for each place: the name is part of its random stream.
    h_BLF = nn.Dropout(self.dropout_rate)(h_BLF, deterministic=deterministic)
    y = dense(self.out_dim or x.shape[-1])(h_BLF)
    return nn.Dropout(self.dropout_rate)(y, deterministic=deterministic)


class Encoder1DBlock(nn.Module):
  """Attention between tokens (Eq. 2), then an MLP on each (Eq. 3).

  Each reads the tokens after a LayerNorm and adds its output to them.
  """

  mlp_dim: int
  num_heads: int
  dropout_rate: float = 0.1
  attention_dropout_rate: float = 0.1
  layer_norm_epsilon: float = 1e-6
  exact_gelu: bool = False
  attention: str = 'xla'
  dtype: Any = jnp.float32

  @nn.compact
  def __call__(
    self,
    inputs: Tokens,
    stochastic_depth_rate: Any = None,
    *,
    deterministic: bool,
  ) -> Tokens:
    norm = functools.partial(
      layers.LayerNorm, epsilon=self.layer_norm_epsilon, dtype=self.dtype
    )
    drop_branch = functools.partial(
      blocks.drop_branch,
      self,
      rate=stochastic_depth_rate,
      deterministic=deterministic,
    )
    attention = layers.MultiHeadDotProductAttention(
      num_heads=self.num_heads,
      dropout_rate=self.attention_dropout_rate,
      kernel_init=_KERNEL_INIT,
      implementation=self.attention,
      dtype=self.dtype,
    )
    mlp = MlpBlock(self.mlp_dim, self.dropout_rate, self.exact_gelu, self.dtype)

    y = attention(norm()(inputs), deterministic=deterministic)
    y = nn.Dropout(self.dropout_rate)(y, deterministic=deterministic)
    x = inputs + drop_branch(y)  # Eq. 2
    y = mlp(norm()(x), deterministic=deterministic)
    return x + drop_branch(y)  # Eq. 3


class Encoder(nn.Module):
  """Position embeddings, `num_layers` blocks and a last LayerNorm (Eq. 1-4).

  `remat`, `scan_layers` and `stochastic_depth_rate` are arguments of
  `blocks.apply_blocks`, `attention` one of `layers.ATTENTION`.
  """

  num_layers: int
  mlp_dim: int
  num_heads: int
  dropout_rate: float = 0.1
  attention_dropout_rate: float = 0.1
  add_position_embedding: bool = True
  final_norm: bool = True
  stochastic_depth_rate: float = 0.0
  layer_norm_epsilon: float = 1e-6
  exact_gelu: bool = False
  attention: str = 'xla'
  remat: str = ''
  scan_layers: bool = False
  dtype: Any = jnp.float32

  @nn.compact
  def __call__(self, x: Tokens, *, train: bool) -> Tokens:
    if self.add_position_embedding:
      x = AddPositionEmbs(name='posembed_input')(x)
      x = nn.Dropout(self.dropout_rate)(x, deterministic=not train)
    make_block = functools.partial(
      Encoder1DBlock,
      mlp_dim=self.mlp_dim,
      num_heads=self.num_heads,
      dropout_rate=self.dropout_rate,
      attention_dropout_rate=self.attention_dropout_rate,
      layer_norm_epsilon=self.layer_norm_epsilon,
      exact_gelu=self.exact_gelu,
      attention=self.attention,
      dtype=self.dtype,
    )
    x = blocks.apply_blocks(
      make_block,
      'encoderblock',
      x,
      depth=self.num_layers,
      stochastic_depth_rate=self.stochastic_depth_rate,
      deterministic=not train,
      remat=self.remat,
      scan=self.scan_layers,
    )
    if not self.final_norm:
      return x
    return layers.LayerNorm(
      self.layer_norm_epsilon, self.dtype, name='encoder_norm'
    )(x)


class VisionTransformer(nn.Module):
  """Images to logits (Sec. 3.1).

  Attributes:
    num_classes: size of the head; None leaves it out and returns features.
    patches: mapping whose `size` is (height, width) of a patch in pixels, or in
      cells of the ResNet's feature map.
    transformer: mapping of arguments for `Encoder`; None leaves it out.
    hidden_size: width D of the tokens.
    resnet: mapping of arguments for `resnet.resnet`, the stem of a hybrid.
    representation_size: width of a tanh layer before the head, as used in
      pre-training; None leaves it out.
    classifier: 'token' (class token), 'gap' (mean of the tokens), 'token_gap'
      (mean of all but the class token), 'unpooled' (all tokens) or
      'token_unpooled' (all tokens and the class token).
    fc_norm: whether the last LayerNorm comes after the pooling, not before.
    head_bias_init: initial value of the biases of the head.
    encoder: class of the encoder, or what makes it as `Encoder` is made.
    dtype: of the computation; parameters and logits are always float32.
    model_name: for the reader only.
  """

  num_classes: int | None
  patches: model_configs.ModelConfig
  transformer: model_configs.ModelConfig | None
  hidden_size: int
  resnet: model_configs.ModelConfig | None = None
  representation_size: int | None = None
  classifier: str = 'token'
  fc_norm: bool = False
  head_bias_init: float = 0.0
  encoder: Callable[..., nn.Module] = Encoder
  dtype: Any = jnp.float32
  model_name: str | None = None

  @nn.compact
  def __call__(
    self, inputs: Num[ArrayLike, 'B H W C'], *, train: bool
  ) -> Float[Array, 'B ...']:
    """Returns float32 logits [B, num_classes]; [B, L, ...] if unpooled.

    Args:
      inputs: images in [-1, 1], any height, width and channel count. Pixels
        right of and below the last whole patch are not read.
      train: whether to apply dropout (needs the `dropout` random stream).

    Raises:
      ValueError: if `classifier` is unknown or does not fit the rest, or an
        image holds no whole patch.
    """
    x = jnp.asarray(inputs)
    self._check((x.shape[1], x.shape[2]))
    if self.resnet is not None:
      x = resnet_lib.resnet(x, self.resnet, self.dtype)
    patch_size = tuple(self.patches['size'])
    x = layers.PatchEmbedding(
      self.hidden_size, patch_size, self.dtype, name='embedding'
    )(x)
    if self.transformer is not None:
      x = self._encode(x, self.transformer, train)
    x = self._pool(x.astype(jnp.float32))
    if self.representation_size is not None:
      x = nn.tanh(nn.Dense(self.representation_size, name='pre_logits')(x))
    else:
      x = IdentityLayer(name='pre_logits')(x)
    if self.num_classes:
      x = layers.head(self.num_classes, self.head_bias_init)(x)
    return x

  def _encode(
    self, x: Tokens, encoder: model_configs.ModelConfig, train: bool
  ) -> Float[Array, 'B T D']:
    if spec.of_module(self).num_prefix_tokens:
      cls = self.param('cls', nn.initializers.zeros, (1, 1, x.shape[-1]))
      cls = jnp.tile(cls.astype(x.dtype), (x.shape[0], 1, 1))
      x = jnp.concatenate([cls, x], axis=1)
    return self.encoder(
      final_norm=not self.fc_norm,
      dtype=self.dtype,
      name='Transformer',
      **encoder,
    )(x, train=train)

  def _pool(self, x: Tokens) -> Float[Array, 'B ...']:
    if self.classifier == 'token':
      x = x[:, 0]
    elif self.classifier == 'gap':
      x = jnp.mean(x, axis=1)
    elif self.classifier == 'token_gap':
      x = jnp.mean(x[:, 1:], axis=1)
    if self.fc_norm:
      epsilon = (self.transformer or {}).get('layer_norm_epsilon', 1e-6)
      x = nn.LayerNorm(epsilon=epsilon, name='fc_norm')(x)
    return x

  def _check(self, image_size: tuple[int, int]) -> None:
    if self.classifier not in CLASSIFIERS:
      raise ValueError(
        f'classifier is {self.classifier!r}, must be one of {CLASSIFIERS}.'
      )
    what = spec.of_module(self)
    if self.transformer is None and what.num_prefix_tokens:
      raise ValueError(
        f"classifier is {self.classifier!r}, must be 'gap' or 'unpooled'"
        f' without a transformer, which adds the class token.'
      )
    if 0 in what.grid(image_size):
      (height, width), patch = image_size, what.patch_size
      raise ValueError(
        f'Images of {height}x{width} pixels hold no patch of'
        f' {patch[0]}x{patch[1]}. Try larger images or smaller patches.'
      )
