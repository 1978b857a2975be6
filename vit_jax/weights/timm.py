"""timm's `VisionTransformer`, its hybrids and `MlpMixer`."""

from collections.abc import Mapping
import math
import pathlib
import re
from typing import Any

from absl import logging

from vit_jax.configs import spec
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.weights import array_files
from vit_jax.weights import extras
from vit_jax.weights import infer
from vit_jax.weights import npz
from vit_jax.weights import record as weights_lib
from vit_jax.weights import timm_names
from vit_jax.weights import torch_layout

EPSILON = 1e-6  # Of LayerNorm, which timm's config.json does not say.
OPTIONS = 'vit_jax_options'  # What we add to it: what it cannot say.

# Whether `act_layer` is the exact GELU; None is timm's default.
_EXACT_GELU = {None: True, 'gelu': True, 'gelu_tanh': False}

# What architectures have that is not usual for their width, and that a
# config.json does not repeat.
_UNUSUAL = (
  (r'test_vit2?', {'num_heads': 2}),
  (r'vit_base_patch16_gap_224', {'num_heads': 16}),
  (r'vit_giantopt_.*', {'num_heads': 16}),
  (r'.*_quickgelu_.*', {'act_layer': 'quick_gelu'}),
  (r'vit_base_patch32_siglip_(gap_)?256', {'act_layer': 'gelu_tanh'}),
  (r'vit_large_patch16_siglip_(gap_)?512', {'act_layer': 'gelu_tanh'}),
  (r'vit_(so400m|giantopt)_patch16_siglip_.*', {'act_layer': 'gelu_tanh'}),
)

HYBRIDS_DIFFER = (
  'timm standardises the kernels of a ResNet by another formula: logits of'
  ' hybrids differ by up to 1e-3 of their size.'
)


def read(path: pathlib.Path) -> weights_lib.Weights:
  """Reads a `.safetensors` of timm, or a folder with it and `config.json`.

  Raises:
    errors.UserError: if it is another architecture, damaged or not whole.
  """
  folder = path if path.is_dir() else path.parent
  return from_state_dict(
    array_files.read_safetensors(path),
    files.read_json(folder / 'config.json'),
    str(path),
  )


def from_state_dict(
  arrays: Mapping[str, Any], config: Mapping[str, Any], path: str
) -> weights_lib.Weights:
  """Returns the weights of a state dict and its `config.json`.

  Args:
    arrays: NumPy arrays by timm's names.
    config: as timm writes it for the Hugging Face hub; may be empty, and then
      heads are those usual for the width and the pooling that of the arrays.
    path: where they are from, for messages.
  """
  arguments = _arguments(config)
  head = 'head.weight' in arrays
  depth = infer.count(arrays, r'blocks\.\d+\.norm1\.weight')
  heads = 1
  file, architecture = path, config.get('architecture')
  if architecture:
    path = f'{path} ({architecture})'
  if not timm_names.is_names(arrays):
    raise errors.UserError(
      f'{path} is neither a ViT nor a Mixer of timm: its {len(arrays)} arrays'
      f' have names such as {", ".join(sorted(arrays)[:3])}.'
    )
  if 'stem.proj.weight' in arrays:
    names = timm_names.mixer_names(depth, head)
    torch_layout.check_names(arrays, names, path)
  else:
    arrays = timm_names.split_qkv(arrays)
    if 'pos_embed' in arrays and 'cls_token' in arrays:
      arrays['pos_embed'] = npz.with_class_token(
        arrays['pos_embed'], _num_patches(arrays, config)
      )
    names = timm_names.vit_names(
      depth,
      head=head,
      class_token='cls_token' in arrays,
      fc_norm='fc_norm.weight' in arrays,
      stages=timm_names.resnet_stages(arrays),
    )
    width = arrays['patch_embed.proj.weight'].shape[0]
    known = config.get(OPTIONS, {}) | arguments
    torch_layout.check_names(arrays, names, path)
    heads = known.get('num_heads') or infer.known_num_heads(
      width, path, has_config=bool(config)
    )
  params = torch_layout.to_linen(arrays, names, heads, path)
  weights = _describe(params, config, arguments, file)
  weights_lib.check(weights, path, names)
  return weights


def _arguments(config: Mapping[str, Any]) -> dict[str, Any]:
  """Returns timm's `model_args`, with those that the architecture implies."""
  arguments, name = {}, str(config.get('architecture'))
  for pattern, unusual in _UNUSUAL:
    if re.fullmatch(pattern, name):
      arguments |= unusual
  return arguments | (config.get('model_args') or {})


def _image_size(config: Mapping[str, Any]) -> tuple[int, int] | None:
  pretrained = config.get('pretrained_cfg') or config
  size = (config.get('model_args') or {}).get('img_size')
  size = size or tuple((pretrained.get('input_size') or (0,))[1:])
  return ((size, size) if isinstance(size, int) else tuple(size)) or None


def _num_patches(
  arrays: Mapping[str, Any], config: Mapping[str, Any]
) -> int | None:
  """Returns the number of patches of a plain ViT, if its config tells."""
  size = _image_size(config)
  if not size or timm_names.resnet_stages(arrays) is not None:
    return None
  patch = arrays['patch_embed.proj.weight'].shape[2:]
  return (size[0] // patch[0]) * (size[1] // patch[1])


def _describe(
  params: weights_lib.Params,
  config: Mapping[str, Any],
  arguments: Mapping[str, Any],
  path: str,
) -> weights_lib.Weights:
  activation = arguments.get('act_layer')
  if activation not in _EXACT_GELU:
    raise errors.UserError(
      f"{path} has the activation {activation!r}; 'gelu' and 'gelu_tanh' are"
      f' known.'
    )
  model, image_size = infer.model_of(params, pathlib.PurePath(path).stem)
  options = {
    'layer_norm_epsilon': EPSILON,
    'exact_gelu': _EXACT_GELU[activation],
    **config.get(OPTIONS, {}),
  }
  classifier = _classifier(params, config, arguments, path)
  spec.encoder(model).update(options)
  if 'classifier' in model:
    model['classifier'] = classifier
  if spec.of(model).stem_units is not None:
    logging.warning(HYBRIDS_DIFFER)
  pretrained = config.get('pretrained_cfg') or config
  size = _image_size(config)
  if size and (image_size is None or arguments.get('img_size')):
    image_size = size
  class_names = weights_lib.numbered_classes(params)
  labels = config.get('label_names') or pretrained.get('label_names')
  if labels and len(labels) == len(class_names):
    class_names = list(labels)
  weights = weights_lib.Weights(
    params=params,
    model=model,
    class_names=class_names,
    preprocessing=infer.preprocessing(
      params,
      image_size,
      mean=pretrained.get('mean'),
      std=pretrained.get('std'),
      resize_test=_resize_test(pretrained, image_size, path),
    ),
  )
  return extras.restored(weights, config)


def _resize_test(
  pretrained: Mapping[str, Any], size: tuple[int, int] | None, path: str
) -> int | tuple[int, int] | None:
  """Returns what timm resizes to before it takes the middle."""
  if size is None or not pretrained.get('crop_pct'):
    return None
  resize = tuple(math.floor(n / pretrained['crop_pct']) for n in size)
  mode = pretrained.get('crop_mode') or 'center'
  if mode == 'center' and size[0] == size[1]:
    return resize[0]
  if mode == 'squash':
    return None if resize == tuple(size) else resize
  logging.warning(
    '%s: timm prepares images of %s by crop_mode %r, which nothing here does:'
    ' whole images are resized.',
    path,
    size,
    mode,
  )
  return None


def _classifier(
  params: weights_lib.Params,
  config: Mapping[str, Any],
  arguments: Mapping[str, Any],
  path: str,
) -> str:
  has_token = 'cls' in params
  by_arrays = 'token' if has_token and 'fc_norm' not in params else 'avg'
  pool = arguments.get('global_pool', config.get('global_pool', by_arrays))
  classifier = {
    ('token', True): 'token',
    ('avg', True): 'token_gap',
    ('avg', False): 'gap',
  }.get((pool, has_token))
  if classifier is None:
    raise errors.UserError(
      f"{path} pools by {pool!r}, which no model here does; 'avg' and, with a"
      f" class token, 'token' are known."
    )
  return classifier
