"""timm's `VisionTransformer`, its hybrids and `MlpMixer`."""

from collections.abc import Mapping
import pathlib
from typing import Any

from absl import logging

from vit_jax import errors
from vit_jax import weights as weights_lib
from vit_jax.interop import files
from vit_jax.interop import huggingface
from vit_jax.interop import infer
from vit_jax.interop import npz
from vit_jax.interop import timm_names
from vit_jax.interop import torch_layout

_EPSILON = 1e-6  # Of LayerNorm, which timm's config.json does not say.
_OURS = 'vit_jax_options'  # What we add to it: what it cannot say.

# Whether `act_layer` is the exact GELU; None is timm's default.
_EXACT_GELU = {None: True, 'gelu': True, 'gelu_tanh': False}

# The only ones timm makes by name: (stages of the ResNet, width), and width to
# (letter, blocks).
_HYBRIDS = {
  ((), 192): 'vit_tiny_r_s16_p8_224',
  ((2, 2, 2, 2), 384): 'vit_small_r26_s32_224',
  ((2, 2, 2, 2), 768): 'vit_base_r26_s32_224',
  ((3, 4, 9), 768): 'vit_base_r50_s16_224',
  ((3, 4, 6, 3), 1024): 'vit_large_r50_s32_224',
}
_MIXERS = {512: ('s', 8), 768: ('b', 12), 1024: ('l', 24)}
_MIXER_PATCHES = ((16, 16), (32, 32))

_POOLS = ('token', 'avg')


def read(path: pathlib.Path) -> weights_lib.Weights:
  """Reads a `.safetensors` of timm, or a folder with it and `config.json`.

  Raises:
    errors.UserError: if it is another architecture, damaged or not whole.
  """
  folder = path if path.is_dir() else path.parent
  return from_state_dict(
    files.read_safetensors(path),
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
  arguments = config.get('model_args') or {}
  head = 'head.weight' in arrays
  depth = infer.count(arrays, r'blocks\.\d+\.norm1\.weight')
  heads = 1
  if 'stem.proj.weight' in arrays:
    names = timm_names.mixer_names(depth, head)
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
    known = config.get(_OURS, {}) | arguments
    heads = known.get('num_heads') or infer.known_num_heads(width, path)
  params = torch_layout.to_linen(arrays, names, heads, path)
  weights = _describe(params, config, arguments, path)
  weights_lib.check(weights, path, names)
  return weights


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
  model, image_shape = infer.model_of(params, pathlib.Path(path).stem)
  options = {
    'layer_norm_epsilon': _EPSILON,
    'exact_gelu': _EXACT_GELU[activation],
    **config.get(_OURS, {}),
  }
  if 'transformer' in model:
    model['transformer'] |= options
    model['classifier'] = _classifier(params, config, arguments, path)
  else:
    model |= options
  pretrained = config.get('pretrained_cfg') or config
  size = _image_size(config)
  if size and (image_shape is None or arguments.get('img_size')):
    image_shape = (*size, weights_lib.num_channels(params))
  class_names = weights_lib.numbered_classes(params)
  labels = config.get('label_names') or pretrained.get('label_names')
  if labels and len(labels) == len(class_names):
    class_names = list(labels)
  return weights_lib.Weights(
    params=params,
    model=model,
    class_names=class_names,
    image_shape=image_shape,
    mean=tuple(pretrained.get('mean') or (0.5,)),
    std=tuple(pretrained.get('std') or (0.5,)),
  )


def _classifier(
  params: weights_lib.Params,
  config: Mapping[str, Any],
  arguments: Mapping[str, Any],
  path: str,
) -> str:
  if 'cls' not in params:
    return 'gap'
  by_arrays = 'avg' if 'fc_norm' in params else 'token'
  pool = arguments.get('global_pool') or config.get('global_pool') or by_arrays
  if pool not in _POOLS:
    raise errors.UserError(
      f'{path} pools by {pool!r}, which no model here does; {_POOLS} are known.'
    )
  return 'token_gap' if pool == 'avg' else 'token'


def export(
  weights: weights_lib.Weights,
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
  """Returns the arrays and the JSON file that timm wants.

  Returns:
    ({timm's name: array}, {'config.json': content}).

  Raises:
    errors.UserError: if timm has no such model.
  """
  module, head = weights.module(), bool(weights.class_names)
  height, width, channels = weights.image_shape
  if 'tokens_mlp_dim' in weights.model:
    names = timm_names.mixer_names(module.num_blocks, head)
    architecture, arguments, pool = _mixer_architecture(module), {}, 'avg'
    num_features, options = module.hidden_dim, weights.model
  else:
    names, architecture, arguments, pool = _export_vit(module, head)
    num_features, options = module.hidden_size, module.transformer
  arguments |= {
    'img_size': height if height == width else [height, width],
    'in_chans': channels,
  }
  ours = {
    **{k: options[k] for k in ('num_heads',) if k in options},
    'layer_norm_epsilon': options.get('layer_norm_epsilon', _EPSILON),
    'exact_gelu': bool(options.get('exact_gelu')),
  }
  if not ours['exact_gelu'] and 'tokens_mlp_dim' not in weights.model:
    arguments['act_layer'] = 'gelu_tanh'
  elif not ours['exact_gelu']:
    logging.warning('The GELU is the tanh approximation here, exact in timm.')
  if ours['layer_norm_epsilon'] != _EPSILON:
    logging.warning(
      'LayerNorm has epsilon %g here and %g in timm: logits differ slightly.',
      ours['layer_norm_epsilon'],
      _EPSILON,
    )
  config = {
    'architecture': architecture,
    'num_classes': len(weights.class_names),
    'num_features': num_features,
    'global_pool': pool,
    _OURS: ours,
    'label_names': list(weights.class_names),
    'model_args': arguments,
    'pretrained_cfg': {
      'input_size': [channels, height, width],
      'mean': huggingface.per_channel(weights.mean, channels),
      'std': huggingface.per_channel(weights.std, channels),
      'interpolation': 'bilinear',
      'crop_pct': 1.0,
      'crop_mode': 'squash',
      'num_classes': len(weights.class_names),
      'first_conv': 'patch_embed.proj',
      'classifier': 'head',
    },
  }
  arrays = timm_names.join_qkv(torch_layout.from_linen(weights.params, names))
  return arrays, {'config.json': config}


def _mixer_architecture(module: Any) -> str:
  width, patch = module.hidden_dim, tuple(module.patches['size'])
  sizes = (module.num_blocks, module.tokens_mlp_dim, module.channels_mlp_dim)
  letter, *usual = _MIXERS.get(width, ('', 0))
  if sizes != (*usual, width // 2, 4 * width) or patch not in _MIXER_PATCHES:
    raise errors.UserError(
      f'timm has no Mixer of width {width}, patch {patch} and {sizes} blocks,'
      f' token and channel mlp dimensions; it has the released sizes alone.'
    )
  return f'mixer_{letter}{patch[0]}_224'


def _export_vit(
  module: Any, head: bool
) -> tuple[dict[str, str], str, dict[str, Any], str]:
  """Returns (names, architecture, model_args, pooling)."""
  reason = ''
  pool = {'token': 'token', 'gap': 'avg', 'token_gap': 'avg'}.get(
    module.classifier
  )
  if module.transformer is None:
    reason = 'model without a transformer'
  elif module.representation_size is not None:
    reason = 'tanh layer (pre_logits) before its head'
  elif pool is None:
    reason = f'classifier {module.classifier!r}'
  if reason:
    raise errors.UserError(
      f'VisionTransformer of timm has no {reason}. Try --to=npz.'
    )
  encoder, stages = module.transformer, None
  if module.resnet is not None:
    stages = tuple(module.resnet['num_layers'])
  class_token = module.classifier != 'gap'
  names = timm_names.vit_names(
    encoder['num_layers'],
    head=head,
    class_token=class_token,
    fc_norm=module.fc_norm,
    stages=stages,
  )
  arguments: dict[str, Any] = {
    'class_token': class_token,
    'global_pool': pool,
    'fc_norm': module.fc_norm,
  }
  if stages is not None:
    return names, _hybrid_architecture(module, stages), arguments, pool
  patch = tuple(module.patches['size'])
  arguments |= {
    'patch_size': patch[0] if patch[0] == patch[1] else list(patch),
    'embed_dim': module.hidden_size,
    'depth': encoder['num_layers'],
    'num_heads': encoder['num_heads'],
    'mlp_ratio': encoder['mlp_dim'] / module.hidden_size,
  }
  return names, 'vit_base_patch16_224', arguments, pool


def _hybrid_architecture(module: Any, stages: tuple[int, ...]) -> str:
  key = (stages, module.hidden_size)
  if key not in _HYBRIDS or module.resnet['width_factor'] != 1:
    raise errors.UserError(
      f'timm has no hybrid with ResNet stages {stages} and width'
      f' {module.hidden_size}; it has the released ones alone.'
    )
  logging.warning('Group norm has epsilon 1e-6 here and 1e-5 in timm.')
  return _HYBRIDS[key]
