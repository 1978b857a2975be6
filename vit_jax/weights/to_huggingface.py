"""Exports weights as models of transformers."""

import contextlib
import math
import textwrap
from typing import Any

from absl import logging

from vit_jax.configs import labels as labels_lib
from vit_jax.configs import spec
from vit_jax.runtime import errors
from vit_jax.weights import extras
from vit_jax.weights import families
from vit_jax.weights import huggingface
from vit_jax.weights import layer_scale
from vit_jax.weights import pillow_filters
from vit_jax.weights import record as weights_lib
from vit_jax.weights import token_positions
from vit_jax.weights.families import state_dicts

_OTHERS = {
  'mixer': 'MLP-Mixer',
  'lit': 'LiT',
  'vit': 'model without a transformer',
}


def export(
  weights: weights_lib.Weights,
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
  """Returns ({PyTorch's name: array}, {file name: JSON}) for transformers.

  Raises:
    errors.UserError: if transformers has no such model.
  """
  if weights.spec.family == 'vit':
    weights = token_positions.positioned(weights)
  head, preprocessor = bool(weights.class_names), _preprocessor(weights)
  weights, key = _with_family(weights, head)
  family = families.FAMILIES[key]
  arrays = state_dicts.arrays_of(family, weights)
  config = _family_config(family, key, weights)
  if family.processor:
    preprocessor |= {
      'image_processor_type': family.processor,
      'patch_size': weights.spec.patch_size[0],
      'max_num_patches': math.prod(weights.grid()),
    }
  again = huggingface.from_state_dict(arrays, config, preprocessor)
  config[extras.KEY] = extras.lost(weights, again)
  contents = {'config.json': config, 'preprocessor_config.json': preprocessor}
  if weights.vocabulary:
    pp = weights.known_model()['pp']
    contents['tokenizer_config.json'] = {
      **family.tokenizer.get(pp['tokenizer_name'], {}),
      'model_max_length': pp['max_len'],
    }
  return arrays, contents


def _with_family(
  weights: weights_lib.Weights, head: bool
) -> tuple[weights_lib.Weights, str]:
  """Returns weights that a family has; a classifier may lose its LayerScale."""
  try:
    return weights, _family_of(weights, head)
  except errors.UserError as e:
    folded = layer_scale.multiplied_in(weights) if head else weights
    if folded is weights:
      raise
    try:
      key = _family_of(folded, head)
    except errors.UserError:  # LayerScale is not what keeps them out.
      raise e from None
  logging.warning(
    'transformers has no LayerScale in such a model: kernels are multiplied by'
    ' it, so the same outputs may round otherwise.'
  )
  return folded, key


def _family_config(
  family: families.Family, key: str, weights: weights_lib.Weights
) -> dict[str, Any]:
  architecture = family.architectures[bool(weights.class_names)]
  config = {
    **_common_config(weights, family.model_type or key, architecture),
    **family.write(weights.known_model()),
  }
  if 'vision_config' in config:
    for name in ('image_size', 'num_channels'):
      config['vision_config'][name] = config.pop(name)
  if family.processor:
    vision = config.get('vision_config', config)
    vision['num_patches'] = math.prod(weights.grid())
  return config


def _family_of(weights: weights_lib.Weights, head: bool) -> str:
  """Returns the first family that has the parameters of a model.

  Position embeddings may be resized otherwise and, without a head, tokens pooled
  otherwise, which is warned of.
  """
  model = weights.known_model()
  lost, reasons, pooling = {}, {}, {}
  for key, family in families.FAMILIES.items():
    if family.architectures[head] is None:
      continue
    with contextlib.suppress(KeyError, TypeError, weights_lib.WeightsError):
      again = family.read(family.write(model), head)
      changed = families.lost(model, again)
      pooling[key], harmless = spec.of(again).pooling, _harmless(weights, again)
      reasons[key] = [x for x in changed if not x.startswith(harmless)]
      lost[key] = changed
  if not lost:  # Of another kind altogether.
    raise errors.UserError(
      f'transformers has no {_OTHERS[spec.family(model)]}. Try to=timm or'
      f' to=npz.'
    )
  best = min(lost, key=lambda key: (len(reasons[key]), len(lost[key])))
  missing = reasons[best] or _not_square(families.FAMILIES[best], weights)
  if missing:
    settings = textwrap.shorten(', '.join(missing), 200)
    raise errors.UserError(
      f'transformers has no model with {settings}. Try to=timm or to=npz.'
    )
  if (ours := weights.spec.pooling) != pooling[best]:
    logging.warning(
      'These weights pool by %r, but %s of transformers by %r: its pooled outputs'
      ' differ. All parameters and last_hidden_state are the same.',
      *(ours, families.FAMILIES[best].architectures[head], pooling[best]),
    )
  return best


def _harmless(
  weights: weights_lib.Weights, again: weights_lib.Params
) -> tuple[str, ...]:
  """Returns how settings start whose loss leaves parameters and logits equal."""
  ours, theirs = weights.spec, spec.of(again)
  pools_by_attention = 'map' in f'{ours.pooling} {theirs.pooling}'
  has_same_tokens = ours.extra_tokens == theirs.extra_tokens
  resizes = 'posemb_resize=', 'image.posemb_resize='
  if weights.class_names or pools_by_attention or not has_same_tokens:
    return resizes
  return *resizes, 'classifier='


def _not_square(
  family: families.Family, weights: weights_lib.Weights
) -> list[str]:
  """Returns the sizes, as 'name=value', that a family takes only as squares."""
  sizes = {
    'image_size': weights.input_shape()[:2],
    'patch_size': weights.spec.patch_size,
  }
  return [
    f'{name}={sizes[name]}'
    for name in family.square
    if sizes[name][0] != sizes[name][1]
  ]


def _common_config(
  weights: weights_lib.Weights, kind: str, architecture: str | None
) -> dict[str, Any]:
  """Returns the fields of a `config.json` that all families have."""
  height, width, channels = weights.input_shape()
  config: dict[str, Any] = {
    'model_type': kind,
    'architectures': [architecture],
    'dtype': 'float32',
    'image_size': families.one_or_pair((height, width)),
    'num_channels': channels,
  }
  if names := list(weights.class_names):
    config['id2label'] = dict(enumerate(names))
    config['label2id'] = {name: i for i, name in enumerate(names)}
    if weights.loss == 'sigmoid':
      config['problem_type'] = huggingface.SIGMOID
    if weights.task == labels_lib.REGRESSION:
      config['problem_type'] = huggingface.NUMBERS
  return config


def _preprocessor(weights: weights_lib.Weights) -> dict[str, Any]:
  height, width, channels = weights.input_shape()
  size = {'height': height, 'width': width}
  preprocessing = weights.preprocessing
  resize = preprocessing.resize_test
  steps: dict[str, Any] = {
    'image_processor_type': 'ViTImageProcessor',
    'size': size,
  }
  if resize is not None:
    steps = {  # ViT's own processor does not crop.
      'image_processor_type': 'CLIPImageProcessor',
      'size': {'shortest_edge': resize}
      if isinstance(resize, int)
      else dict(zip(size, resize, strict=True)),
      'do_center_crop': True,
      'crop_size': size,
      'do_convert_rgb': channels == 3,
    }
  return {
    **steps,
    'do_resize': True,
    'resample': pillow_filters.number(preprocessing.interpolation),
    'do_rescale': True,
    'rescale_factor': 1 / 255,
    'do_normalize': True,
    'image_mean': per_channel(preprocessing.mean, channels),
    'image_std': per_channel(preprocessing.std, channels),
  }


def per_channel(values: Any, channels: int) -> list[float]:
  """Returns one value for each channel."""
  values = list(values)
  return values * channels if len(values) == 1 else values
