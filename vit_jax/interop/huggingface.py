"""Hugging Face's `ViTForImageClassification` and `ViTModel`."""

from collections.abc import Collection, Mapping
import pathlib
import re
from typing import Any

from vit_jax import errors
from vit_jax import weights as weights_lib
from vit_jax.interop import files
from vit_jax.interop import infer
from vit_jax.interop import torch_layout

_BLOCK = (
  ('LayerNorm_0', 'layernorm_before'),
  ('MultiHeadDotProductAttention_0/query', 'attention.attention.query'),
  ('MultiHeadDotProductAttention_0/key', 'attention.attention.key'),
  ('MultiHeadDotProductAttention_0/value', 'attention.attention.value'),
  ('MultiHeadDotProductAttention_0/out', 'attention.output.dense'),
  ('LayerNorm_1', 'layernorm_after'),
  ('MlpBlock_0/Dense_0', 'intermediate.dense'),
  ('MlpBlock_0/Dense_1', 'output.dense'),
)

_ALIASES = (  # The modules of transformers 5, whose files have the old names.
  (r'\blayers\.(\d+)\.', r'encoder.layer.\1.'),
  (r'attention\.q_proj', 'attention.attention.query'),
  (r'attention\.k_proj', 'attention.attention.key'),
  (r'attention\.v_proj', 'attention.attention.value'),
  (r'attention\.o_proj', 'attention.output.dense'),
  (r'mlp\.fc1', 'intermediate.dense'),
  (r'mlp\.fc2', 'output.dense'),
)

# Whether `hidden_act` is the exact GELU.
_EXACT_GELU = {'gelu': True, 'gelu_new': False, 'gelu_pytorch_tanh': False}


def is_names(names: Collection[str]) -> bool:
  """Whether these are names of the arrays of a ViT of transformers."""
  return any('embeddings.patch_embeddings.' in name for name in names)


def _names(num_layers: int, *, head: bool, pre_logits: bool) -> dict[str, str]:
  prefix = 'vit.' if head else ''
  modules = [
    ('embedding', f'{prefix}embeddings.patch_embeddings.projection'),
    ('Transformer/encoder_norm', f'{prefix}layernorm'),
    *torch_layout.blocks(
      num_layers,
      'Transformer/encoderblock_{}',
      f'{prefix}encoder.layer.{{}}',
      _BLOCK,
    ),
  ]
  if head:
    modules.append(('head', 'classifier'))
  if pre_logits:
    modules.append(('pre_logits', f'{prefix}pooler.dense'))
  return {
    'cls': f'{prefix}embeddings.cls_token',
    'Transformer/posembed_input/pos_embedding': (
      f'{prefix}embeddings.position_embeddings'
    ),
    **torch_layout.array_names(modules),
  }


def read(path: pathlib.Path) -> weights_lib.Weights:
  """Reads a folder of `save_pretrained`, or a `.safetensors` with its names.

  The pooler of a `ViTModel` is the `pre_logits` layer of the official models.
  Without a `config.json` beside it, a file is taken to have the exact GELU and
  an epsilon of 1e-12, as `ViTConfig` has by default.

  Raises:
    errors.UserError: if it is another architecture, damaged or not whole.
  """
  arrays = files.read_safetensors(path)
  folder = path if path.is_dir() else path.parent
  return from_state_dict(
    arrays,
    files.read_json(folder / 'config.json'),
    files.read_json(folder / 'preprocessor_config.json'),
    str(path),
  )


def from_state_dict(
  arrays: Mapping[str, Any],
  config: Mapping[str, Any],
  preprocessor: Mapping[str, Any],
  path: str,
) -> weights_lib.Weights:
  """Returns the weights of a state dict and what stands beside it.

  Args:
    arrays: NumPy arrays by PyTorch's names.
    config: content of `config.json`; may be empty.
    preprocessor: content of `preprocessor_config.json`; may be empty.
    path: where they are from, for messages.
  """
  if (kind := config.get('model_type', 'vit')) != 'vit':
    raise errors.UserError(
      f"{path} is a model of type {kind!r} of transformers; only 'vit' is read."
    )
  arrays = {_old_name(name): x for name, x in arrays.items()}
  head = 'classifier.weight' in arrays
  prefix = 'vit.' if head else ''
  if not head:
    arrays = {k.removeprefix('vit.'): x for k, x in arrays.items()}
  arrays.pop(f'{prefix}embeddings.mask_token', None)  # Of pre-training only.
  if head:  # transformers does not use it then.
    arrays = {k: x for k, x in arrays.items() if '.pooler.' not in k}
  num_layers = infer.count(
    arrays, rf'{prefix}encoder\.layer\.\d+\.layernorm_before\.weight'
  )
  names = _names(
    num_layers, head=head, pre_logits='pooler.dense.weight' in arrays
  )
  params = torch_layout.to_linen(
    arrays, names, _heads(config, arrays, path), path
  )
  weights = _describe(params, config, preprocessor, path)
  weights_lib.check(weights, path, names)
  return weights


def _old_name(name: str) -> str:
  for pattern, replacement in _ALIASES:
    name = re.sub(pattern, replacement, name)
  return name


def _heads(
  config: Mapping[str, Any], arrays: Mapping[str, Any], path: str
) -> int:
  if 'num_attention_heads' in config:
    return config['num_attention_heads']
  width = next(
    (x.shape[-1] for k, x in arrays.items() if k.endswith('cls_token')), 0
  )
  return infer.known_num_heads(width, path)


def _describe(
  params: weights_lib.Params,
  config: Mapping[str, Any],
  preprocessor: Mapping[str, Any],
  path: str,
) -> weights_lib.Weights:
  activation = config.get('hidden_act', 'gelu')
  if (
    activation not in _EXACT_GELU or config.get('pooler_act', 'tanh') != 'tanh'
  ):
    raise errors.UserError(
      f'{path} has the activation {activation!r} and the pooler'
      f' {config.get("pooler_act")!r}; {sorted(_EXACT_GELU)} and tanh are known.'
    )
  model, image_shape = infer.model_of(params, pathlib.PurePath(path).stem)
  model['transformer'] |= {
    'dropout_rate': float(config.get('hidden_dropout_prob', 0.0)),
    'attention_dropout_rate': float(
      config.get('attention_probs_dropout_prob', 0.0)
    ),
    'layer_norm_epsilon': float(config.get('layer_norm_eps', 1e-12)),
    'exact_gelu': _EXACT_GELU[activation],
  }
  if 'image_size' in config:
    size = config['image_size']
    size = (size, size) if isinstance(size, int) else tuple(size)
    image_shape = (*size, weights_lib.num_channels(params))
  class_names = weights_lib.numbered_classes(params)
  if class_names and (labels := config.get('id2label')):
    labels = {int(i): name for i, name in labels.items()}
    class_names = [labels.get(i, n) for i, n in enumerate(class_names)]
  mean, std = preprocessor.get('image_mean'), preprocessor.get('image_std')
  if not preprocessor.get('do_normalize', True):
    mean, std = (0.0,), (1.0,)
  return weights_lib.Weights(
    params=params,
    model=model,
    class_names=class_names,
    image_shape=image_shape,
    mean=tuple(mean or (0.5,)),
    std=tuple(std or (0.5,)),
  )


def export(
  weights: weights_lib.Weights,
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
  """Returns the arrays and the JSON files that `from_pretrained` wants.

  Returns:
    ({PyTorch's name: array}, {file name: content}).

  Raises:
    errors.UserError: if transformers has no such model.
  """
  head = bool(weights.class_names)
  reasons = _what_is_in_the_way(dict(weights.model or {}), head)
  if reasons:
    raise errors.UserError(
      f'ViTForImageClassification of transformers has no {", no ".join(reasons)}'
      f'. Try --to=timm or --to=npz.'
    )
  module = weights.module()
  names = _names(
    module.transformer['num_layers'],
    head=head,
    pre_logits=module.representation_size is not None,
  )
  return torch_layout.from_linen(weights.params, names), {
    'config.json': _config(module, weights),
    'preprocessor_config.json': _preprocessor(weights),
  }


def _config(module: Any, weights: weights_lib.Weights) -> dict[str, Any]:
  height, width, channels = weights.image_shape
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
  return config


def _preprocessor(weights: weights_lib.Weights) -> dict[str, Any]:
  height, width, channels = weights.image_shape
  size, resize = {'height': height, 'width': width}, weights.resize_test
  steps = {'image_processor_type': 'ViTImageProcessor', 'size': size}
  if resize is not None:
    steps = {  # That of ViT takes no middle.
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
    'image_mean': per_channel(weights.mean, channels),
    'image_std': per_channel(weights.std, channels),
  }


def _what_is_in_the_way(model: dict[str, Any], head: bool) -> list[str]:
  if 'tokens_mlp_dim' in model:
    return ['MLP-Mixer']
  if 'text_model' in model:
    return ['LiT']
  reasons = []
  if model.get('resnet'):
    reasons.append('ResNet stem')
  if not model.get('transformer'):
    reasons.append('model without a transformer')
  elif not model['transformer'].get('add_position_embedding', True):
    reasons.append('model without position embeddings')
  if model['classifier'] != 'token':
    reasons.append(f'classifier {model["classifier"]!r}')
  if model.get('fc_norm'):
    reasons.append('LayerNorm after the pooling')
  if head and model.get('representation_size'):
    reasons.append('tanh layer (pre_logits) before its head')
  return reasons


def per_channel(values: Any, channels: int) -> list[float]:
  """Returns one value a channel of one for all of them."""
  values = list(values)
  return values * channels if len(values) == 1 else values
