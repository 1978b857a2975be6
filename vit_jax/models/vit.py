"""Vision Transformer (arXiv:2010.11929), with the official parameter names.

An image is cut into patches. Each becomes a token, a vector of width D (Eq. 1);
equal blocks of attention and MLP change the tokens (Eq. 2, 3), and the head reads
classes from the class token or from the mean of all (Eq. 4).

Letters in shapes: B batch, L tokens, D width, F mlp, N heads, H W C image.
"""

from collections.abc import Callable
import functools
from typing import Any

import flax
import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Num

from vit_jax.configs import models as model_configs
from vit_jax.configs import spec
from vit_jax.models import attention as attention_lib
from vit_jax.models import blocks
from vit_jax.models import layers
from vit_jax.models import parts
from vit_jax.models import pooling
from vit_jax.models import positions
from vit_jax.models import resnet as resnet_lib

Tokens = Float[Array, 'B L D']


class Encoder1DBlock(nn.Module):
  """Attention between tokens (Eq. 2), then an MLP on each (Eq. 3).

  Each reads the tokens after a LayerNorm and adds its output to them, multiplied
  by a LayerScale if `layer_scale`, its first value, is given. No token sees the last
  `masked` ones.
  """

  mlp_dim: int
  num_heads: int
  dropout_rate: float = 0.1
  attention_dropout_rate: float = 0.1
  layer_norm_epsilon: float = 1e-6
  exact_gelu: bool = False
  attention: str = 'xla'
  dtype: Any = jnp.float32
  activation: str = 'gelu'
  layer_scale: float | None = None
  biases: str = 'qkv'
  rotary: positions.Rotary | None = None
  causal: bool = False
  masked: int = 0

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

    def branch(y: Tokens) -> Tokens:
      if self.layer_scale is not None:
        y = parts.LayerScale(self.layer_scale)(y)
      return blocks.drop_branch(
        self, y, stochastic_depth_rate, deterministic=deterministic
      )

    attention = attention_lib.MultiHeadDotProductAttention(
      num_heads=self.num_heads,
      dropout_rate=self.attention_dropout_rate,
      kernel_init=parts.KERNEL_INIT,
      implementation=self.attention,
      dtype=self.dtype,
      biases=self.biases,
      rotary=self.rotary,
      causal=self.causal,
      masked=self.masked,
    )
    mlp = parts.MlpBlock(
      self.mlp_dim,
      self.dropout_rate,
      self.exact_gelu,
      self.dtype,
      activation=self.activation,
    )

    y = attention(norm()(inputs), deterministic=deterministic)
    y = nn.Dropout(self.dropout_rate)(y, deterministic=deterministic)
    x = inputs + branch(y)  # Eq. 2
    y = mlp(norm()(x), deterministic=deterministic)
    return x + branch(y)  # Eq. 3


class Encoder(nn.Module):
  """Position embeddings, `num_layers` blocks and a last LayerNorm (Eq. 1-4).

  `remat`, `scan_layers` and `stochastic_depth_rate` are arguments of
  `blocks.apply_blocks`, `attention` one of `attention.ATTENTION`, `without` one of
  `positions.AddPositionEmbs`, `block` a mapping of further arguments for `Encoder1DBlock`.
  CLIP has a `first_norm`, before the blocks. `patch_dropout` and
  `num_prefix_tokens` are arguments of `blocks.drop_patches`.
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
  block: model_configs.ModelConfig = flax.core.FrozenDict()
  first_norm: bool = False
  without: tuple[int, int] = (0, 0)
  patch_dropout: float = 0.0
  num_prefix_tokens: int = 0

  @nn.compact
  def __call__(self, x: Tokens, *, train: bool) -> Float[Array, 'B K D']:
    if self.add_position_embedding:
      x = positions.AddPositionEmbs(
        without=self.without, name='posembed_input'
      )(x)
      x = nn.Dropout(self.dropout_rate)(x, deterministic=not train)
    x = blocks.drop_patches(
      self,
      x,
      self.patch_dropout,
      self.num_prefix_tokens,
      deterministic=not train,
    )
    norm = functools.partial(
      layers.LayerNorm, self.layer_norm_epsilon, self.dtype
    )
    if self.first_norm:
      x = norm(name='first_norm')(x)
    tokens = x.shape[1]
    if self._pads(train):
      x = attention_lib.pad_to_even(x)
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
      masked=x.shape[1] - tokens,
      **self.block,
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
    )[:, :tokens]
    return norm(name='encoder_norm')(x) if self.final_norm else x

  def _pads(self, train: bool) -> bool:
    """Whether the tokens are padded once for cuDNN's attention in all blocks.

    Rotations have one row a token, so with them each block pads.
    """
    rate = self.attention_dropout_rate
    by_cudnn = attention_lib.is_by_cudnn(self, self.attention, rate, train)
    return by_cudnn and 'rotary' not in self.block


class VisionTransformer(nn.Module):
  """Images to logits (Sec. 3.1).

  Attributes:
    num_classes: size of the head; None leaves it out and returns features.
    patches: mapping whose `size` is (height, width) of a patch in pixels, or in
      cells of the ResNet's feature map; `bias` False leaves that out.
    transformer: mapping of arguments for `Encoder`; None leaves it out.
    hidden_size: width D of the tokens.
    resnet: mapping of arguments for `resnet.resnet`, the stem of a hybrid.
    representation_size: width of a tanh layer before the head, as used in
      pre-training; None or 0 leaves it out.
    classifier: from tokens to features, see `pooling.pool`.
    fc_norm: whether the last LayerNorm comes after the pooling, not before.
    head_bias_init: initial value of the biases of the head.
    encoder: class of the encoder, or a callable with the arguments of `Encoder`.
    dtype: precision of the computation; parameters and logits are always float32.
    model_name: for the reader only.
    distillation: 'token' for a distillation token after the class token, 'head'
      for its own head too (arXiv:2012.12877); logits are the mean of both.
      So are features, without heads; where their widths differ, they are those of
      `classifier` alone.
    num_registers: register tokens, between those and the patches
      (arXiv:2309.16588).
    num_positioned: how many tokens before the patches have position embeddings;
      None for the class and the distillation token.
    rotary_base: see `positions.Rotary`; None for no rotations.
    projection: width of a linear layer without bias before the head; None for none.
    posemb_resize: how `weights.adaptation` resizes position embeddings.
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
  distillation: str = ''
  num_registers: int = 0
  num_positioned: int | None = None
  rotary_base: float | None = None
  projection: int | None = None
  posemb_resize: str = 'zoom'

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
    what = spec.of_module(self)
    what.check((x.shape[1], x.shape[2]))
    grid = what.grid((x.shape[1], x.shape[2]))
    if self.resnet is not None:
      x = resnet_lib.resnet(x, self.resnet, self.dtype)
    x = layers.PatchEmbedding(
      self.hidden_size,
      tuple(self.patches['size']),
      self.dtype,
      self.patches.get('bias', True),
      name='embedding',
    )(x)
    if self.transformer is not None:
      x = self._encode(x, self.transformer, what, grid, train)
    tokens = x.astype(jnp.float32)
    x = pooling.pool(tokens, what, self.transformer or {}, self.dtype)
    if self.fc_norm:
      epsilon = (self.transformer or {}).get('layer_norm_epsilon', 1e-6)
      x = nn.LayerNorm(epsilon=epsilon, name='fc_norm')(x)
    if self.representation_size:
      x = nn.tanh(nn.Dense(self.representation_size, name='pre_logits')(x))
    else:
      x = parts.IdentityLayer(name='pre_logits')(x)
    if self.projection:
      x = nn.Dense(self.projection, use_bias=False, name='projection')(x)
    if self.num_classes:
      x = layers.head(self.num_classes, self.head_bias_init)(x)
    if self.distillation == 'head' and x.ndim == 2:
      y = tokens[:, what.extra_tokens['cls']]
      if self.num_classes:
        y = layers.head(self.num_classes, self.head_bias_init, 'head_dist')(y)
      if not self.is_initializing():  # Parameters alone are initialised.
        self.sow('heads', 'outputs', (x, y))  # For training with a teacher.
      if x.shape == y.shape:
        x = (x + y) / 2
    return x

  def _encode(
    self,
    x: Tokens,
    encoder: model_configs.ModelConfig,
    what: spec.ModelSpec,
    grid: tuple[int, int],
    train: bool,
  ) -> Float[Array, 'B T D']:
    x = parts.with_tokens(self, what.extra_tokens, x)
    more = dict(encoder)
    if self.rotary_base:
      rotary = positions.Rotary(grid, self.rotary_base)
      more['block'] = {**encoder.get('block', {}), 'rotary': rotary}
    if what.num_positioned < what.num_prefix_tokens:
      more['without'] = (what.num_positioned, what.num_prefix_tokens)
    if encoder.get('patch_dropout'):
      more['num_prefix_tokens'] = what.num_prefix_tokens
    more = {'final_norm': not self.fc_norm, 'dtype': self.dtype, **more}
    return self.encoder(name='Transformer', **more)(x, train=train)
