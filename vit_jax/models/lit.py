"""LiT, CLIP, SigLIP: images and texts to embeddings of one space.

arXiv:2111.07991, arXiv:2103.00020, arXiv:2303.15343.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import flax
import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int, Num

from vit_jax.configs import models as model_configs
from vit_jax.models import bert
from vit_jax.models import vit
from vit_jax.runtime import official

Embeddings = Float[Array, 'B D']


class BertModel(nn.Module):
  """BERT; its first token, `[CLS]`, stands for the text.

  Attributes:
    config: a key of `bert.SIZES`, or a mapping of arguments for `BertEncoder`.
    num_classes: width of a linear head; None leaves it out.
    encoder: further arguments of `BertEncoder`.
  """

  config: str | model_configs.ModelConfig
  num_classes: int | None = None
  encoder: model_configs.ModelConfig = flax.core.FrozenDict()

  @nn.compact
  def __call__(
    self, tokens: Int[ArrayLike, 'B L'], *, train: bool = False
  ) -> Embeddings:
    arguments = {**_bert_sizes(self.config), **self.encoder}
    encoder = bert.BertEncoder(**arguments, name='BertEncoder_0')
    x = encoder(tokens, train=train)[:, 0]
    if self.num_classes:
      x = nn.Dense(self.num_classes, name='head')(x)
    return x


def _bert_sizes(
  config: str | model_configs.ModelConfig,
) -> model_configs.ModelConfig:
  return bert.SIZES[config] if isinstance(config, str) else config


class TextTransformer(nn.Module):
  """A Vision Transformer's encoder on tokens; one of them stands for the text.

  Attributes:
    num_classes: width of the linear head.
    end: the token that stands for the text, at its first place; None for the last
      token, whatever it is.
    head_bias: whether the head has a bias.
    encoder: further arguments of `vit.Encoder`.
  """

  num_classes: int
  width: int = 512
  num_layers: int = 12
  mlp_dim: int = 2048
  num_heads: int = 8
  dropout_rate: float = 0.0
  vocab_size: int = 32_000
  end: int | None = None
  head_bias: bool = True
  encoder: model_configs.ModelConfig = flax.core.FrozenDict()

  @nn.compact
  def __call__(
    self, tokens: Int[ArrayLike, 'B L'], *, train: bool = False
  ) -> Embeddings:
    ids = jnp.asarray(tokens)
    x = nn.Embed(self.vocab_size, self.width)(ids)
    posemb_init = nn.initializers.normal(stddev=self.width**-0.5)
    x = x + self.param('pos_embedding', posemb_init, (1, *x.shape[1:]))
    x = vit.Encoder(
      num_layers=self.num_layers,
      mlp_dim=self.mlp_dim,
      num_heads=self.num_heads,
      dropout_rate=self.dropout_rate,
      attention_dropout_rate=0.0,
      add_position_embedding=False,
      **self.encoder,
    )(x, train=train)
    x = x[:, -1] if self.end is None else _first(x, ids == self.end)
    return nn.Dense(self.num_classes, self.head_bias, name='head')(x)


def _first(x: Float[Array, 'B L D'], chosen: Bool[Array, 'B L']) -> Embeddings:
  """Returns the first token that is chosen, of each text."""
  return x[jnp.arange(len(x)), jnp.argmax(chosen, axis=1)]


TEXT_MODELS = {'bert': BertModel, 'text_transformer': TextTransformer}


class LitModel(nn.Module):
  """Two towers, whose embeddings are compared by their dot product.

  Attributes:
    image: mapping of arguments for `VisionTransformer`.
    text_model: 'bert' or 'text_transformer'.
    text: mapping of arguments for the text model.
    pp: mapping of how inputs are prepared: `tokenizer_name`, `max_len` in tokens,
      `size` of images in pixels.
    out_dim: widths of the heads of both towers; None for no head.
    temperature_init: initial value of `t`, the logarithm of the temperature.
    temperature_max: its largest value in training; None for no limit.
    bias_init: initial value of the bias of the sigmoid loss (arXiv:2303.15343);
      None for no bias, as the released models have it.
    model_name: for the reader only.
    locked: whether the image tower never has dropout, as in locked-image tuning.
  """

  image: model_configs.ModelConfig
  text_model: str
  text: model_configs.ModelConfig
  pp: model_configs.ModelConfig
  out_dim: Sequence[int | None]
  temperature_init: float = 0.0
  bias_init: float | None = None
  model_name: str | None = None
  locked: bool = True
  temperature_max: float | None = None

  def __getattr__(self, name: str) -> Any:
    """Names what replaces a method of the official class."""
    if official.replacement('LitModel', name):
      raise official.missing('LitModel', name)
    return super().__getattr__(name)

  @property
  def vocab_size(self) -> int:
    """Number of rows of the text tower's embedding table."""
    if self.text_model == 'text_transformer':
      return self.text.get('vocab_size', TextTransformer.vocab_size)
    sizes = _bert_sizes(self.text['config'])
    return sizes.get('vocab_size', bert.BertEncoder.vocab_size)

  @nn.compact
  def __call__(
    self,
    *,
    images: Num[ArrayLike, 'B H W C'] | None = None,
    tokens: Int[ArrayLike, 'K L'] | None = None,
    train: bool = False,
  ) -> tuple[
    Float[Array, 'B D'] | None, Float[Array, 'K D'] | None, dict[str, Array]
  ]:
    """Returns embeddings of length 1, or None for a tower without input.

    Args:
      images: in [-1, 1].
      tokens: ids that the tokeniser of the weights makes.
      train: whether to apply dropout, in the image tower unless it is locked.

    Returns:
      (image embeddings, text embeddings, out). Dot products are multiplied by
      `out['t']`, and `out['b']`, if there is one, is added.
    """
    image_dim, text_dim = self.out_dim
    zimg = ztxt = None
    if tokens is not None:
      text_model = TEXT_MODELS[self.text_model]
      tower = text_model(**{'num_classes': text_dim, **self.text}, name='txt')
      ztxt = _unit_length(tower(tokens, train=train))
    if images is not None:
      image = {**self.image, 'num_classes': image_dim}
      tower = vit.VisionTransformer(**image, name='img')
      zimg = _unit_length(tower(images, train=train and not self.locked))
    temperature_init = nn.initializers.constant(self.temperature_init)
    out = {'t': jnp.exp(self.param('t', temperature_init, (1,)))}
    if self.bias_init is not None:
      bias_init = nn.initializers.constant(self.bias_init)
      out['b'] = self.param('b', bias_init, (1,))
    return zimg, ztxt, out


def similarities(
  zimg: Float[ArrayLike, 'N D'],
  ztxt: Float[ArrayLike, 'K D'],
  out: Mapping[str, Any],
) -> Float[Array, 'N K']:
  """Returns logits of every image with every text; `out` is that of `LitModel`."""
  # Neighbours in rank differ by less than the rounding of a bfloat16 product.
  products = jnp.matmul(zimg, jnp.transpose(ztxt), precision='highest')
  return out['t'] * products + out.get('b', 0.0)


def _unit_length(x: Embeddings) -> Embeddings:
  # The official epsilon; a fresh head gives zeros, which it keeps from 0 / 0.
  norm = jnp.linalg.norm(x, axis=1, keepdims=True)
  return x / (norm + 1e-8)
