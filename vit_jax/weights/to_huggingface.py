"""Exports weights as `ViTForImageClassification` of transformers."""

from typing import Any

from vit_jax.configs import spec
from vit_jax.runtime import errors
from vit_jax.weights import extras
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
  head = bool(weights.class_names)
  reasons = _unsupported_features(weights.spec, head)
  if reasons:
    raise errors.UserError(
      f'ViTForImageClassification of transformers has no {", no ".join(reasons)}'
      f'. Try to=timm or to=npz.'
    )
  module: Any = weights.module()
  names = huggingface.array_names(head=head)
  arrays = torch_layout.from_linen(weights.params, names)
  config, preprocessor = _config(module, weights), _preprocessor(weights)
  again = huggingface.from_state_dict(arrays, config, preprocessor)
  config[extras.KEY] = extras.lost(weights, again)
  return arrays, {
    'config.json': config,
    'preprocessor_config.json': preprocessor,
  }


def _config(module: Any, weights: weights_lib.Weights) -> dict[str, Any]:
  height, width, channels = weights.input_shape()
  encoder, patch = module.transformer, tuple(module.patches['size'])
  names = list(weights.class_names)
  config = {
    'model_type': 'vit',
    'architectures': ['ViTForImageClassification' if names else 'ViTModel'],
    'dtype': 'float32',
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
    'image_size': height if height == width else [height, width],
    'patch_size': patch[0] if patch[0] == patch[1] else list(patch),
    'num_channels': channels,
    'qkv_bias': True,
    'pooler_act': 'tanh',
    'pooler_output_size': module.representation_size or module.hidden_size,
  }
  if names:
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
