"""Reads models of transformers: ViTs, and those in `families`."""

from collections.abc import Mapping, Sequence
import copy
import dataclasses
import math
import pathlib
import re
from typing import Any

from absl import logging

from vit_jax.runtime import files
from vit_jax.weights import array_files
from vit_jax.weights import extras
from vit_jax.weights import families
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

_NAMES = {  # The names in a `ViTModel`.
  'cls': 'embeddings.cls_token',
  'Transformer/posembed_input/pos_embedding': 'embeddings.position_embeddings',
  **torch_layout.array_names(
    [
      ('embedding', 'embeddings.patch_embeddings.projection'),
      ('Transformer/encoder_norm', 'layernorm'),
      *torch_layout.blocks(
        'Transformer/encoderblock_{}', 'encoder.layer.{}', _BLOCK
      ),
      ('head', 'classifier'),
      ('pre_logits', 'pooler.dense'),
    ]
  ),
}
_NEEDED = ('cls', 'embedding', 'Transformer/encoder_norm')

_ALIASES = (  # Modules of transformers 5; its files keep the old names.
  (r'\blayers\.(\d+)\.', r'encoder.layer.\1.'),
  (r'attention\.q_proj', 'attention.attention.query'),
  (r'attention\.k_proj', 'attention.attention.key'),
  (r'attention\.v_proj', 'attention.attention.value'),
  (r'attention\.o_proj', 'attention.output.dense'),
  (r'mlp\.fc1', 'intermediate.dense'),
  (r'mlp\.fc2', 'output.dense'),
)

SIGMOID = 'multi_label_classification'  # The `problem_type` of that loss.


def find(path: pathlib.Path) -> pathlib.Path | None:
  """Returns a `.safetensors`, or its folder, of a model of transformers."""
  if not array_files.is_safetensors(path):
    return None
  names = array_files.safetensors_names(path)
  is_vit = any('embeddings.patch_embeddings.' in name for name in names)
  is_ours = is_vit or 'model_type' in files.read_json(path / 'config.json')
  return path if is_ours else None


def array_names(*, head: bool) -> dict[str, str]:
  """Returns {official name: transformers'} of all arrays a ViT may have."""
  if not head:
    return _NAMES
  return {
    k: v if k.startswith('head/') else f'vit.{v}' for k, v in _NAMES.items()
  }


def read(path: pathlib.Path) -> weights_lib.Weights:
  """Reads a folder of `save_pretrained`, or a `.safetensors` with its names.

  Without a `config.json` beside it, a file has the defaults of `ViTConfig`: the
  exact GELU and an epsilon of 1e-12.
  """
  arrays = array_files.read_safetensors(path)
  folder = path if path.is_dir() else path.parent
  return from_state_dict(
    arrays,
    files.read_json(folder / 'config.json'),
    files.read_json(folder / 'preprocessor_config.json'),
    path.stem,
  )


def from_state_dict(
  arrays: Mapping[str, Any],
  config: Mapping[str, Any],
  preprocessor: Mapping[str, Any],
  model_name: str = 'model',
) -> weights_lib.Weights:
  """Returns the weights in a state dict and its JSON files, which may be empty.

  The pooler of a `ViTModel` is the `pre_logits` layer of the official models.
  """
  kind, family = config.get('model_type', 'vit'), None
  if kind == 'vit':
    weights, names = _of_vit(arrays, config, model_name)
  else:
    family = _family(kind, arrays)
    weights, names = families.state_dicts.read(
      family, arrays, config, model_name
    )
    preprocessor = {**family.preprocessor, **preprocessor}
  weights = _describe(weights, config, preprocessor)
  weights_lib.check(weights, names)
  return weights


def _family(kind: str, arrays: Mapping[str, Any]) -> families.Family:
  if kind in families.REFUSED:
    raise weights_lib.WeightsError(
      f'is a model of type {kind!r} of transformers: {families.REFUSED[kind]}.'
    )
  family = families.find(kind, arrays)
  if family is None:
    known = ', '.join(('vit', *families.kinds()))
    raise weights_lib.WeightsError(
      f'is a model of type {kind!r} of transformers; those that can be read are'
      f' {known}.'
    )
  return family


def _of_vit(
  arrays: Mapping[str, Any], config: Mapping[str, Any], model_name: str
) -> tuple[weights_lib.Weights, dict[str, str]]:
  """Returns the weights and the names of their arrays; `config` may be empty."""
  arrays = {_old_name(name): x for name, x in arrays.items()}
  head = 'classifier.weight' in arrays
  if head:  # Then transformers does not use the pooler.
    arrays = {k: x for k, x in arrays.items() if '.pooler.' not in k}
  else:
    arrays = {k.removeprefix('vit.'): x for k, x in arrays.items()}
  for name in ('embeddings.mask_token', 'vit.embeddings.mask_token'):
    arrays.pop(name, None)  # Only for pre-training.
  names = array_names(head=head)
  flat = torch_layout.renamed(arrays, names, _NEEDED)
  num_heads = config.get('num_attention_heads', 0)
  if 'num_attention_heads' not in config:
    width = flat['cls'].shape[-1]
    num_heads = infer.known_num_heads(width, has_config=bool(config))
  params = torch_layout.to_linen(flat, names, num_heads)
  weights = infer.described(params, model_name)
  model = copy.deepcopy(dict(weights.known_model()))
  model['transformer'] |= _of_json(config)
  return dataclasses.replace(weights, model=model), names


def _of_json(config: Mapping[str, Any]) -> dict[str, Any]:
  """Returns what the `config.json` of a ViT says about its encoder."""
  activation = config.get('hidden_act', 'gelu')
  pooler = config.get('pooler_act', 'tanh')
  if activation not in families.EXACT_GELU or pooler != 'tanh':
    raise weights_lib.WeightsError(
      f'has the activation {activation!r} and the pooler {pooler!r}; known are'
      f' {sorted(families.EXACT_GELU)} and tanh.'
    )
  return {
    'dropout_rate': float(config.get('hidden_dropout_prob', 0.0)),
    'attention_dropout_rate': float(
      config.get('attention_probs_dropout_prob', 0.0)
    ),
    'layer_norm_epsilon': float(config.get('layer_norm_eps', 1e-12)),
    'exact_gelu': families.EXACT_GELU[activation],
  }


def _old_name(name: str) -> str:
  for pattern, replacement in _ALIASES:
    name = re.sub(pattern, replacement, name)
  return name


def _describe(
  weights: weights_lib.Weights,
  config: Mapping[str, Any],
  preprocessor: Mapping[str, Any],
) -> weights_lib.Weights:
  """Returns weights with the fields of the JSON files."""
  size = weights.preprocessing.size
  vision = config.get('vision_config') or config
  if 'image_size' in vision:
    size = families.pair(vision['image_size'])
  class_names = weights.class_names
  if class_names and (labels := config.get('id2label')):
    labels = {int(i): name for i, name in labels.items()}
    class_names = [labels.get(i, n) for i, n in enumerate(class_names)]
  mean, std = _normalisation(preprocessor)
  resize_test = _resize_test(
    preprocessor, size, weights.known_model()['model_name']
  )
  return extras.described(
    weights,
    config,
    {'size': size, 'mean': mean, 'std': std, 'resize_test': resize_test},
    class_names=class_names,
    loss='sigmoid' if config.get('problem_type') == SIGMOID else 'softmax',
  )


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
  preprocessor: Mapping[str, Any],
  size: tuple[int, int] | None,
  model_name: str,
) -> int | tuple[int, int] | None:
  """Returns the size to which transformers resizes before a centre crop."""
  if size is None or not preprocessor.get('do_center_crop'):
    return None
  crop, resize = preprocessor.get('crop_size'), preprocessor.get('size')
  if crop is None and resize is None and size[0] == size[1]:
    return size[0]  # Of a family that does so, without a file that says it.
  crop = _height_width(crop) if isinstance(crop, dict | int) else crop
  if isinstance(resize, dict) and 'shortest_edge' in resize:
    resize = resize['shortest_edge']
    is_large = resize >= max(size)
  elif isinstance(resize, dict):
    resize = _height_width(resize)
    is_large = resize[0] >= size[0] and resize[1] >= size[1]
  else:  # Old files give the shorter side.
    is_large = isinstance(resize, int) and resize >= max(size)
  if crop in (None, size) and is_large:
    return resize
  logging.warning(
    '%s: transformers resizes images to %s and crops the centre, %s, but the'
    ' model takes images of %s: whole images are resized.',
    model_name,
    resize,
    crop,
    size,
  )
  return None


def _height_width(size: Any) -> tuple[int, int]:
  """Returns (height, width) of a size written by transformers."""
  if isinstance(size, int):
    return size, size
  return size['height'], size['width']
