"""Infers a model from the names and shapes of its parameters."""

from collections.abc import Mapping
import math
import re
from typing import Any

from vit_jax.configs import common
from vit_jax.configs import registry
from vit_jax.configs import spec
from vit_jax.data import preprocessing
from vit_jax.weights import record as weights_lib

Model = dict[str, Any]

# Initial values of LayerScale, which weights do not store: DINOv2's and timm's.
LAYER_SCALE = 1e-5

# Usual attention heads by width, for formats that do not store their number.
_HEADS = {192: 3, 1152: 16, 1280: 16, 1408: 16, 1664: 16}


def known_num_heads(width: int, *, has_config: bool) -> int:
  """Returns the usual number of heads of a width.

  Without one, asks for a `config.json`, or for a field of it if `has_config`.
  """
  if width in _HEADS:
    return _HEADS[width]
  if width and width % 64 == 0:
    return width // 64
  hint = 'Add it to its' if has_config else 'Put beside it its'
  raise weights_lib.WeightsError(
    f'does not say how many heads its attention has, and no released model has'
    f' width {width}. {hint} config.json.'
  )


def described(
  params: weights_lib.Params,
  model_name: str,
  size: tuple[int, int] | None = None,
  *,
  usual_positions: bool = True,
) -> weights_lib.Weights:
  """Returns parameters with all that their names and shapes tell.

  The dropout rate is that of released weights with this name, or 0. The image
  size is that of a square grid.

  Args:
    params: the parameters.
    model_name: the name to give.
    size: (height, width) of images, if known. It only helps to tell which tokens
      have position embeddings, unless those are the usual ones.
    usual_positions: whether, of the tokens before the patches, the class and the
      distillation token have position embeddings, as in the official models.
  """
  model, class_names = None, []
  if 'embedding' in params:
    model = {'model_name': model_name, **_vit(params)}
    if not usual_positions:
      model |= _positioned(params, model, size)
    entry = registry.entries().get(model_name)
    if model['transformer'] and entry and not entry.is_family:
      config = common.with_model(common.get_config(), model_name)
      rate = config.model.transformer.dropout_rate
      model['transformer']['dropout_rate'] = rate
  elif 'stem' in params:
    model = {'model_name': model_name, **_mixer(params)}
  size = None
  if model is not None:
    size = _image_size(params, model)
    class_names = weights_lib.numbered_classes(params)
  return weights_lib.Weights(
    params=params,
    model=model,
    class_names=class_names,
    preprocessing=preprocessing.Preprocessing(
      size=size, channels=weights_lib.num_channels(params)
    ),
  )


def count(params: Mapping[str, Any], pattern: str) -> int:
  """Returns how many names match."""
  return sum(re.fullmatch(pattern, name) is not None for name in params)


def _vit(params: weights_lib.Params) -> Model:
  height, width, _, hidden_size = params['embedding']['kernel'].shape
  model = {
    'patches': {'size': (height, width)},
    'hidden_size': hidden_size,
    'transformer': None,
    'classifier': _classifier(params),
    'representation_size': None,
    **_newer_parts(params),
  }
  if 'pre_logits' in params:
    model['representation_size'] = params['pre_logits']['bias'].shape[0]
  if 'fc_norm' in params:
    model['fc_norm'] = True
  if 'conv_root' in params:
    num_stages = count(params, r'block\d+')
    model['resnet'] = {
      'num_layers': tuple(
        count(params[f'block{i + 1}'], r'unit\d+') for i in range(num_stages)
      ),
      'width_factor': params['conv_root']['kernel'].shape[-1] / 64,
    }
  if 'Transformer' in params:
    encoder = params['Transformer']
    model['transformer'] = {
      **encoder_sizes(encoder),
      'attention_dropout_rate': 0.0,
      'dropout_rate': 0.0,
      **_newer_encoder(encoder),
    }
  return model


def encoder_sizes(encoder: weights_lib.Params) -> dict[str, int]:
  """Returns the sizes of an encoder, as its arguments."""
  block = encoder['encoderblock_0']
  attention = block['MultiHeadDotProductAttention_0']
  return {
    'mlp_dim': block['MlpBlock_0']['Dense_0']['bias'].shape[0],
    'num_heads': attention['query']['kernel'].shape[1],
    'num_layers': count(encoder, r'encoderblock_\d+'),
  }


def _classifier(params: weights_lib.Params) -> str:
  if 'MAPHead_0' in params:
    return 'token_map' if 'cls' in params else 'map'
  if 'cls' not in params:
    return 'gap'
  return 'token_mean' if _reads_token_and_mean(params) else 'token'


def _reads_token_and_mean(params: weights_lib.Params) -> bool:
  """Whether the head reads the class token beside the mean of the patches."""
  if 'head' not in params or {'pre_logits', 'projection'} & params.keys():
    return False
  return len(params['head']['kernel']) == 2 * params['cls'].shape[-1]


def _newer_parts(params: weights_lib.Params) -> Model:
  """Returns fields of parts that the official models do not have."""
  model: Model = {}
  if 'bias' not in params['embedding']:
    size = params['embedding']['kernel'].shape[:2]
    model['patches'] = {'size': size, 'bias': False}
  if 'dist' in params:
    model['distillation'] = 'head' if 'head_dist' in params else 'token'
  if 'reg' in params:
    model['num_registers'] = params['reg'].shape[1]
  if 'projection' in params:
    model['projection'] = params['projection']['kernel'].shape[1]
  return model


def _newer_encoder(encoder: weights_lib.Params) -> Model:
  """Returns settings of an encoder that the official models do not have."""
  first = encoder['encoderblock_0']
  settings: Model = {}
  block: Model = {}
  if 'gate' in first['MlpBlock_0']:
    block['activation'] = 'swiglu'
  if 'LayerScale_0' in first:
    block['layer_scale'] = LAYER_SCALE
  attention = first['MultiHeadDotProductAttention_0']
  biases = ''.join(
    name[0] for name in ('query', 'key', 'value') if 'bias' in attention[name]
  )
  if biases != 'qkv':
    block['biases'] = biases
  if block:
    settings['block'] = block
  if 'first_norm' in encoder:
    settings['first_norm'] = True
  if 'posembed_input' not in encoder:
    settings['add_position_embedding'] = False
  return settings


def _positioned(
  params: weights_lib.Params, model: Model, size: tuple[int, int] | None
) -> Model:
  """Returns how many tokens before the patches have position embeddings."""
  what, flat = spec.of(model), weights_lib.flatten(params)
  if what.position_embeddings not in flat:
    return {}
  length = flat[what.position_embeddings].shape[1]
  # The usual tokens, none or all.
  for number in (what.num_positioned, 0, what.num_prefix_tokens):
    patches = length - number
    square = math.isqrt(max(patches, 0)) ** 2
    if patches > 0 and patches == (
      math.prod(what.grid(size)) if size else square
    ):
      return {} if number == what.num_positioned else {'num_positioned': number}
  return {}


def _mixer(params: weights_lib.Params) -> Model:
  height, width, _, hidden_dim = params['stem']['kernel'].shape
  block = params['MixerBlock_0']
  return {
    'patches': {'size': (height, width)},
    'hidden_dim': hidden_dim,
    'num_blocks': count(params, r'MixerBlock_\d+'),
    'tokens_mlp_dim': block['token_mixing']['Dense_0']['bias'].shape[0],
    'channels_mlp_dim': block['channel_mixing']['Dense_0']['bias'].shape[0],
  }


def _image_size(
  params: weights_lib.Params, model: Model
) -> tuple[int, int] | None:
  what, flat = spec.of(model), weights_lib.flatten(params)
  if what.token_mixing:
    num_patches = flat[what.token_mixing].shape[0]
  elif what.position_embeddings in flat:
    num_tokens = flat[what.position_embeddings].shape[1]
    num_patches = num_tokens - what.num_positioned
  else:
    return None
  side = math.isqrt(max(num_patches, 0))
  is_square = num_patches > 0 and side**2 == num_patches
  return what.image_size((side, side)) if is_square else None
