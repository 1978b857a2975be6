"""Which model a parameter tree is of, told from its names and shapes."""

from collections.abc import Mapping
import math
import re
from typing import Any

from vit_jax.configs import spec
from vit_jax.data import preprocessing as preprocessing_lib
from vit_jax.runtime import errors
from vit_jax.weights import record as weights_lib

Model = dict[str, Any]

# Heads by width, where a format does not say: those of the field's models.
_HEADS = {192: 3, 1152: 16, 1280: 16, 1408: 16, 1664: 16}


def known_num_heads(width: int, path: str, *, has_config: bool) -> int:
  """Returns the usual number of heads of a width.

  Args:
    width: of the model.
    path: where the weights are from, for messages.
    has_config: whether there was a `config.json`, which does not say it.

  Raises:
    errors.UserError: if there is none; only a config can tell then.
  """
  if width in _HEADS:
    return _HEADS[width]
  if width and width % 64 == 0:
    return width // 64
  hint = 'Add it to its config.json' if has_config else 'Put its config.json'
  raise errors.UserError(
    f'{path} does not say how many heads its attention has, and no released'
    f' model has width {width}. {hint}{"" if has_config else " beside it"}.'
  )


def model_of(
  params: weights_lib.Params, model_name: str
) -> tuple[Model | None, tuple[int, int] | None]:
  """Returns (model config, image size in pixels, (height, width)).

  The image size is that of a square grid; dropout is 0. Either is None where
  the tree does not tell.

  Args:
    params: nested, with official names.
    model_name: what to call it.
  """
  if 'embedding' in params:
    model = _vit(params)
  elif 'stem' in params:
    model = _mixer(params)
  else:
    return None, None
  model = {'model_name': model_name, **model}
  return model, _image_size(params, model)


def count(params: Mapping[str, Any], pattern: str) -> int:
  """Returns how many names there are that match."""
  return sum(re.fullmatch(pattern, name) is not None for name in params)


def _vit(params: weights_lib.Params) -> Model:
  height, width, _, hidden_size = params['embedding']['kernel'].shape
  model = {
    'patches': {'size': (height, width)},
    'hidden_size': hidden_size,
    'transformer': None,
    'classifier': 'token' if 'cls' in params else 'gap',
    'representation_size': None,
  }
  if 'pre_logits' in params:
    model['representation_size'] = params['pre_logits']['bias'].shape[0]
  if 'fc_norm' in params:
    model['fc_norm'] = True
  if 'conv_root' in params:
    model['resnet'] = {
      'num_layers': tuple(
        count(params[f'block{i + 1}'], r'unit\d+')
        for i in range(count(params, r'block\d+'))
      ),
      'width_factor': params['conv_root']['kernel'].shape[-1] / 64,
    }
  if 'Transformer' in params:
    encoder = params['Transformer']
    block = encoder['encoderblock_0']
    attention = block['MultiHeadDotProductAttention_0']
    model['transformer'] = {
      'mlp_dim': block['MlpBlock_0']['Dense_0']['bias'].shape[0],
      'num_heads': attention['query']['bias'].shape[0],
      'num_layers': count(encoder, r'encoderblock_\d+'),
      'attention_dropout_rate': 0.0,
      'dropout_rate': 0.0,
    }
  return model


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


def num_patches(params: weights_lib.Params) -> int | None:
  """Returns how many patches the parameters are for; None if they don't say."""
  if 'stem' in params:
    mixing = params['MixerBlock_0']['token_mixing']
    return mixing['Dense_0']['kernel'].shape[0]
  posemb = params.get('Transformer', {}).get('posembed_input')
  if not posemb:
    return None
  return posemb['pos_embedding'].shape[1] - ('cls' in params)


def preprocessing(
  params: weights_lib.Params, size: tuple[int, int] | None, **said: Any
) -> preprocessing_lib.Preprocessing:
  """Returns what a format says, and the channels, which the arrays tell.

  Args:
    params: nested, with official names.
    size: (height, width) of the input; None where nothing tells.
    **said: other fields of the record; those that are None keep their default.
  """
  said = {name: value for name, value in said.items() if value is not None}
  if weights_lib.first_kernel(params) is not None:
    said['channels'] = weights_lib.num_channels(params)
  return preprocessing_lib.Preprocessing().changed({'size': size, **said})


def _image_size(
  params: weights_lib.Params, model: Model
) -> tuple[int, int] | None:
  patches = num_patches(params)
  side = math.isqrt(patches or 0)
  if not patches or side**2 != patches:
    return None
  return spec.of(model).image_size((side, side))
