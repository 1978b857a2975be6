"""Properties of a model, derived from its config here and nowhere else."""

from collections.abc import Mapping
import dataclasses
from typing import Any

from vit_jax.configs.models import ModelConfig

# Names of the blocks of all families, without their numbers.
BLOCKS = ('encoderblock', 'MixerBlock', 'layers')

# How the tokens of a ViT become features, see `models.pooling`.
CLASSIFIERS = (
  'token',
  'gap',
  'token_gap',
  'token_mean',
  'map',
  'token_map',
  'unpooled',
  'token_unpooled',
)

# Modules that training for other classes replaces, of all families.
HEADS = ('head', 'head_dist')

# Distillation token: none, the token, or the token with a head of its own.
DISTILLATIONS = ('', 'token', 'head')

# Activations of an MLP, see `models.parts`.
ACTIVATIONS = ('gelu', 'quick_gelu', 'swiglu')

# Letters of the projections of attention that have a bias.
BIASES = ('qkv', 'qk', 'qv', 'kv', 'q', 'k', 'v', '')

# Arguments of an encoder that matter only in training.
OF_TRAINING = (
  'stochastic_depth_rate',
  'patch_dropout',
  'attention',
  'remat',
  'scan_layers',
)

# How position embeddings are resized, see `weights.resized_positions`.
RESIZES = ('zoom', 'bicubic', 'bicubic_antialias', 'bilinear_antialias')

# Names of the parameters that see the image, of all families.
FIRST_KERNELS = ('conv_root/kernel', 'embedding/kernel', 'stem/kernel')


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSpec:
  """Properties of a model; if it has two towers, of its image tower.

  Names of parameters are those in the tree of the image tower.

  Attributes:
    family: 'vit', 'mixer' or 'lit'; `models.from_config` knows their classes.
    name: `model_name` of the config, '' if it has none.
    has_texts: whether there is a text tower.
    patch_size: (height, width) in pixels, or in cells of the stem's output.
    stem_units: residual units of each stage of a ResNet stem; None without one.
    first_kernel: parameter that sees the image.
    width: D of the tokens.
    depth: number of blocks; 0 if the model is a ResNet alone.
    num_heads: attention heads; 0 without attention.
    block: name of the blocks, without their number.
    last_norm: name of the LayerNorm after the blocks, before the pooling; ''
      if it comes after the pooling or there is none.
    ends_with_norm: whether there is one after the blocks, before or after the
      pooling; True without blocks.
    extra_tokens: number of the tokens before those of the patches, by parameter.
    num_positioned: how many of them have position embeddings.
    position_embeddings: parameter with one embedding per token; '' without one.
    token_mixing: parameter with one row per patch, which fixes their number; ''
      if any number of patches is possible.
    pads: whether images are padded to whole patches, instead of cut.
    posemb_resize: how position embeddings are resized.
    pooling: from tokens to features, 'gap' or another `classifier` of a ViT.
    representation_size: width of the layer before the head; 0 without one.
    heads: modules that training for other classes replaces.
  """

  family: str
  name: str
  has_texts: bool = False
  patch_size: tuple[int, ...]
  stem_units: tuple[int, ...] | None = None
  first_kernel: str
  width: int
  depth: int
  num_heads: int = 0
  block: str
  last_norm: str
  ends_with_norm: bool = True
  extra_tokens: Mapping[str, int] = dataclasses.field(default_factory=dict)
  num_positioned: int = 0
  position_embeddings: str = ''
  posemb_resize: str = 'zoom'
  token_mixing: str = ''
  pads: bool = False
  pooling: str = 'gap'
  representation_size: int = 0
  heads: tuple[str, ...] = ('head',)

  @property
  def num_prefix_tokens(self) -> int:
    """How many tokens there are before those of the patches."""
    return sum(self.extra_tokens.values())

  @property
  def has_class_token(self) -> bool:
    """Whether the first token is a class token."""
    return bool(self.extra_tokens.get('cls'))

  def check(self, image_size: tuple[int, int]) -> None:
    """Raises a ValueError if there is no such ViT, or not for such images."""
    if self.pooling not in CLASSIFIERS:
      raise ValueError(
        f'classifier is {self.pooling!r}, must be one of {CLASSIFIERS}.'
      )
    if not self.depth and self.num_prefix_tokens:
      raise ValueError(
        f"classifier is {self.pooling!r}, must be 'gap' or 'unpooled'"
        f' without a transformer, which adds the class token.'
      )
    if 0 in self.grid(image_size):
      (height, width), patch = image_size, self.patch_size
      raise ValueError(
        f'Images of {height}x{width} pixels hold no patch of'
        f' {patch[0]}x{patch[1]}. Try larger images or smaller patches.'
      )

  def grid(self, image_size: tuple[int, int]) -> tuple[int, int]:
    """Returns (rows, columns) of patches in an image (height, width)."""
    height, width = image_size
    for _ in range(self._num_halvings):  # Each rounds up.
      height, width = -(-height // 2), -(-width // 2)
    rows, columns = self.patch_size
    if self.pads:
      return -(-height // rows), -(-width // columns)
    return height // rows, width // columns

  def num_tokens(self, image_size: tuple[int, int]) -> int:
    """Returns how many tokens an image (height, width) becomes."""
    rows, columns = self.grid(image_size)
    return self.num_prefix_tokens + rows * columns

  def num_positions(self, image_size: tuple[int, int]) -> int:
    """Returns how many tokens of an image have position embeddings."""
    rows, columns = self.grid(image_size)
    return self.num_positioned + rows * columns

  def image_size(self, grid: tuple[int, int]) -> tuple[int, int]:
    """Returns (height, width) of the image with a grid of patches."""
    height, width = (size << self._num_halvings for size in self.patch_size)
    return grid[0] * height, grid[1] * width

  @property
  def _num_halvings(self) -> int:
    """How often the stem halves the image."""
    if self.stem_units is None:
      return 0
    return 2 + max(len(self.stem_units) - 1, 0)


def of(model: ModelConfig) -> ModelSpec:
  """Returns the properties of a model with a config as in `configs.models`."""
  return _MAKERS[family(model)](model)


def of_module(module: Any) -> ModelSpec:
  """Returns the properties of a Flax module with the fields of a config."""
  return of(
    {f.name: getattr(module, f.name) for f in dataclasses.fields(module)}
  )


def family(model: ModelConfig) -> str:
  """Returns the family of a model: each has a field that the others lack."""
  if 'text_model' in model:
    return 'lit'
  return 'mixer' if 'tokens_mlp_dim' in model else 'vit'


def has_texts(model: ModelConfig | None) -> bool:
  """Whether a model has a text tower; False for None, a model not known yet."""
  return 'text_model' in (model or {})


def image_tower(model: Any) -> Any:
  """Returns the part of a config that describes the image tower."""
  return model['image'] if has_texts(model) else model


def encoder(model: Any) -> Any | None:
  """Returns the part of a config with settings of the blocks; None without."""
  tower = image_tower(model)
  return tower if family(tower) == 'mixer' else tower['transformer']


def _vit(model: ModelConfig) -> ModelSpec:
  encoder, resnet = model['transformer'] or {}, model.get('resnet')
  pooling = model.get('classifier', 'token')
  norm_is_last = encoder and encoder.get(
    'final_norm', not model.get('fc_norm', False)
  )
  has_positions = encoder and encoder.get('add_position_embedding', True)
  distillation = model.get('distillation') or ''
  tokens = {
    'cls': int(pooling.startswith('token')),
    'dist': int(bool(distillation)),
    'reg': model.get('num_registers') or 0,
  }
  positioned = model.get('num_positioned')
  return ModelSpec(
    family='vit',
    name=model.get('model_name') or '',
    patch_size=tuple(model['patches']['size']),
    stem_units=tuple(resnet['num_layers']) if resnet else None,
    first_kernel='conv_root/kernel' if resnet else 'embedding/kernel',
    width=model['hidden_size'],
    depth=encoder.get('num_layers', 0),
    num_heads=encoder.get('num_heads', 0),
    block='encoderblock',
    last_norm='encoder_norm' if norm_is_last else '',
    ends_with_norm=bool(not encoder or norm_is_last or model.get('fc_norm')),
    extra_tokens=tokens,
    num_positioned=(
      tokens['cls'] + tokens['dist'] if positioned is None else positioned
    ),
    position_embeddings=(
      'Transformer/posembed_input/pos_embedding' if has_positions else ''
    ),
    posemb_resize=model.get('posemb_resize') or 'zoom',
    pooling=pooling,
    heads=HEADS if distillation == 'head' else HEADS[:1],
    representation_size=model.get('representation_size') or 0,
  )


def _mixer(model: ModelConfig) -> ModelSpec:
  return ModelSpec(
    family='mixer',
    name=model.get('model_name') or '',
    patch_size=tuple(model['patches']['size']),
    first_kernel='stem/kernel',
    width=model['hidden_dim'],
    depth=model['num_blocks'],
    block='MixerBlock',
    last_norm='pre_head_layer_norm',
    token_mixing='MixerBlock_0/token_mixing/Dense_0/kernel',
    pads=True,
  )


def _lit(model: ModelConfig) -> ModelSpec:
  name = model.get('model_name') or ''
  return dataclasses.replace(
    of(model['image']), family='lit', name=name, has_texts=True
  )


_MAKERS = {'vit': _vit, 'mixer': _mixer, 'lit': _lit}
