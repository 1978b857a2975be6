"""Hugging Face's `ViTForImageClassification` and `ViTModel`."""

from collections.abc import Collection, Mapping, Sequence
import math
import pathlib
import re
from typing import Any

from absl import logging

from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.weights import array_files
from vit_jax.weights import extras
from vit_jax.weights import infer
from vit_jax.weights import record as weights_lib
from vit_jax.weights import torch_layout

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

SIGMOID = 'multi_label_classification'  # The `problem_type` of that loss.


def is_names(names: Collection[str]) -> bool:
  """Whether these are names of the arrays of a ViT of transformers."""
  return any('embeddings.patch_embeddings.' in name for name in names)


def array_names(
  num_layers: int, *, head: bool, pre_logits: bool
) -> dict[str, str]:
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
  arrays = array_files.read_safetensors(path)
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
  names = array_names(
    num_layers, head=head, pre_logits='pooler.dense.weight' in arrays
  )
  torch_layout.check_names(arrays, names, path)
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
  return infer.known_num_heads(width, path, has_config=bool(config))


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
  model, image_size = infer.model_of(params, pathlib.PurePath(path).stem)
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
    image_size = (size, size) if isinstance(size, int) else tuple(size)
  class_names = weights_lib.numbered_classes(params)
  if class_names and (labels := config.get('id2label')):
    labels = {int(i): name for i, name in labels.items()}
    class_names = [labels.get(i, n) for i, n in enumerate(class_names)]
  mean, std = _normalisation(preprocessor)
  weights = weights_lib.Weights(
    params=params,
    model=model,
    class_names=class_names,
    preprocessing=infer.preprocessing(
      params,
      image_size,
      mean=mean,
      std=std,
      resize_test=_resize_test(preprocessor, image_size, path),
    ),
    loss='sigmoid' if config.get('problem_type') == SIGMOID else 'softmax',
  )
  return extras.restored(weights, config)


def _normalisation(
  preprocessor: Mapping[str, Any],
) -> tuple[Sequence[float] | None, Sequence[float] | None]:
  """Returns mean and standard deviation of pixels in [0, 1]."""
  mean, std = preprocessor.get('image_mean'), preprocessor.get('image_std')
  if not preprocessor.get('do_normalize', True):
    mean, std = (0.0,), (1.0,)
  factor = preprocessor.get('rescale_factor', 1 / 255)
  scale = 255 * (factor if preprocessor.get('do_rescale', True) else 1)
  if math.isclose(scale, 1):
    return mean, std
  mean, std = mean or (0.5,), std or (0.5,)
  return tuple(x / scale for x in mean), tuple(x / scale for x in std)


def _resize_test(
  preprocessor: Mapping[str, Any], size: tuple[int, int] | None, path: str
) -> int | tuple[int, int] | None:
  """Returns what transformers resizes to before it takes the middle."""
  if size is None or not preprocessor.get('do_center_crop'):
    return None
  crop, resize = preprocessor.get('crop_size'), preprocessor.get('size')
  crop = _height_width(crop) if isinstance(crop, dict | int) else crop
  if isinstance(resize, dict) and 'shortest_edge' in resize:
    resize = resize['shortest_edge']
    is_large = resize >= max(size)
  elif isinstance(resize, dict):
    resize = _height_width(resize)
    is_large = resize[0] >= size[0] and resize[1] >= size[1]
  else:  # Of old files: the shorter side.
    is_large = isinstance(resize, int) and resize >= max(size)
  if crop in (None, size) and is_large:
    return resize
  logging.warning(
    '%s: transformers resizes images to %s and takes the middle, %s, but the'
    ' model is of images of %s: whole images are resized.',
    path,
    resize,
    crop,
    size,
  )
  return None


def _height_width(size: Any) -> tuple[int, int]:
  """Returns (height, width) of a size as transformers writes it."""
  if isinstance(size, int):
    return size, size
  return size['height'], size['width']
