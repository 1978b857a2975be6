"""Exports weights as models of transformers."""

from typing import Any

from vit_jax.configs import spec
from vit_jax.runtime import errors
from vit_jax.weights import extras
from vit_jax.weights import families
from vit_jax.weights import huggingface
from vit_jax.weights import record as weights_lib
from vit_jax.weights import torch_layout

_UNSUPPORTED_FAMILIES = {'mixer': 'MLP-Mixer', 'lit': 'LiT'}


def export(
  weights: weights_lib.Weights,
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
  """Returns ({PyTorch's name: array}, {file name: JSON}) for transformers.

  Raises:
    errors.UserError: if transformers has no such model.
  """
  head, preprocessor = bool(weights.class_names), _preprocessor(weights)
  reasons = _unsupported_features(weights.spec, head)
  reasons = reasons or _unusual_settings(weights.known_model())
  if not reasons:
    names = huggingface.array_names(head=head)
    arrays = torch_layout.from_linen(weights.params, names)
    config = _vit_config(weights.module(), weights)
  elif key := _family_of(weights.known_model(), head):
    family = families.FAMILIES[key]
    arrays = families.state_dicts.arrays_of(family, weights)
    config = _family_config(family, key, weights)
  else:
    raise errors.UserError(
      f'ViTForImageClassification of transformers has no {", no ".join(reasons)}'
      f'. Try to=timm or to=npz.'
    )
  again = huggingface.from_state_dict(arrays, config, preprocessor)
  config[extras.KEY] = extras.lost(weights, again)
  return arrays, {
    'config.json': config,
    'preprocessor_config.json': preprocessor,
  }


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
  return config


def _family_of(model: weights_lib.Params, head: bool) -> str:
  """Returns the first family that can say all of a config; '' if none can."""
  for key, family in families.FAMILIES.items():
    if family.architectures[head] is None:
      continue
    try:
      again = family.read(family.write(model), head)
    except (KeyError, TypeError):  # Of another kind altogether.
      continue
    if not families.lost(model, again):
      return key
  return ''


def _unusual_settings(model: weights_lib.Params) -> list[str]:
  """Returns the settings that `ViTConfig` does not have."""
  encoder = dict(model['transformer'])
  for name in ('block', 'first_norm'):
    encoder.pop(name, None)
  names = ('patches', 'hidden_size', 'classifier', 'representation_size')
  usual = {name: model[name] for name in names if name in model}
  return families.lost(model, {**usual, 'transformer': encoder})


def _vit_config(module: Any, weights: weights_lib.Weights) -> dict[str, Any]:
  encoder = module.transformer
  return {
    **_common_config(
      weights,
      'vit',
      'ViTForImageClassification' if weights.class_names else 'ViTModel',
    ),
    'hidden_size': module.hidden_size,
    'num_hidden_layers': encoder['num_layers'],
    'num_attention_heads': encoder['num_heads'],
    'intermediate_size': encoder['mlp_dim'],
    'hidden_act': (
      'gelu' if encoder.get('exact_gelu') else 'gelu_pytorch_tanh'
    ),
    'hidden_dropout_prob': encoder.get('dropout_rate', 0.0),
    'attention_probs_dropout_prob': encoder.get('attention_dropout_rate', 0.0),
    'layer_norm_eps': encoder.get('layer_norm_epsilon', 1e-6),
    'patch_size': families.one_or_pair(tuple(module.patches['size'])),
    'qkv_bias': True,
    'pooler_act': 'tanh',
    'pooler_output_size': module.representation_size or module.hidden_size,
  }


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
    'resample': 2,  # Bilinear.
    'do_rescale': True,
    'rescale_factor': 1 / 255,
    'do_normalize': True,
    'image_mean': per_channel(preprocessing.mean, channels),
    'image_std': per_channel(preprocessing.std, channels),
  }


def _unsupported_features(what: spec.ModelSpec, head: bool) -> list[str]:
  if what.family in _UNSUPPORTED_FAMILIES:
    return [_UNSUPPORTED_FAMILIES[what.family]]
  has_positions = not what.depth or what.position_embeddings
  features = {
    'ResNet stem': what.stem_units is not None,
    'model without a transformer': not what.depth,
    'model without position embeddings': not has_positions,
    f'classifier {what.pooling!r}': what.pooling != 'token',
    'LayerNorm after the pooling': what.depth and not what.last_norm,
    'tanh layer (pre_logits) before its head': head
    and what.representation_size,
  }
  return [name for name, is_used in features.items() if is_used]


def per_channel(values: Any, channels: int) -> list[float]:
  """Returns one value for each channel."""
  values = list(values)
  return values * channels if len(values) == 1 else values
