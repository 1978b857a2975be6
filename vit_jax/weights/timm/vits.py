"""Which `VisionTransformer` or `Eva` of timm a ViT is."""

import dataclasses
from typing import Any

import numpy as np

from vit_jax.configs import spec
from vit_jax.runtime import errors
from vit_jax.weights import record as weights_lib
from vit_jax.weights.timm import architectures

# timm's `global_pool`, by our classifier.
POOLS = {
  'token': 'token',
  'gap': 'avg',
  'token_gap': 'avg',
  'map': 'map',
  'token_map': 'map',
}

# Architectures that take any sizes as arguments. They imply what no argument can
# give: the class, the epsilon of LayerNorm or the kind of MLP.
PLAIN = 'vit_base_patch16_224'
_EPSILON_1E5 = 'vit_base_patch16_clip_224'
_GATED = 'vit_giant_patch14_dinov2'
_DISTILLED = 'deit_base_distilled_patch16_224'

_USUAL = {
  'reg_tokens': 0,
  'no_embed_class': False,
  'pre_norm': False,
  'qkv_bias': True,
  'init_values': None,
}


def projection_as_head(weights: weights_lib.Weights) -> weights_lib.Weights:
  """Returns weights whose projection is a head, as timm keeps that of CLIP."""
  params, model = dict(weights.params), dict(weights.known_model())
  kernel = params.pop('projection')['kernel']
  del model['projection']
  params['head'] = {
    'kernel': kernel,
    'bias': np.zeros(kernel.shape[-1], np.float32),
  }
  return dataclasses.replace(
    weights,
    params=params,
    model=model,
    class_names=weights_lib.numbered_classes(params),
  )


def head_as_projection(weights: weights_lib.Weights) -> weights_lib.Weights:
  """Undoes `projection_as_head`."""
  params = dict(weights.params)
  kernel = params.pop('head')['kernel']
  params['projection'] = {'kernel': kernel}
  model = {**weights.known_model(), 'projection': kernel.shape[-1]}
  return dataclasses.replace(
    weights, params=params, model=model, class_names=()
  )


def check(module: Any, what: spec.ModelSpec) -> None:
  """Raises an `errors.UserError` if timm has no such ViT."""
  reasons = [
    name for name, is_used in _missing(module, what).items() if is_used
  ]
  if reasons:
    raise errors.UserError(
      f'VisionTransformer of timm has no {reasons[0]}. Try to=npz.'
    )


def _missing(module: Any, what: spec.ModelSpec) -> dict[str, bool]:
  """Returns whether a model has what timm has not, by its name."""
  encoder = module.transformer or {}
  block = encoder.get('block', {})
  activation = block.get('activation', 'gelu')
  biases, rotates = block.get('biases', 'qkv'), bool(module.rotary_base)
  pools_by_attention = what.pooling in ('map', 'token_map')
  distils = bool(module.distillation)
  has_patch_bias = module.patches.get('bias', True)
  return {
    'model without a transformer': module.transformer is None,
    'tanh layer (pre_logits) before its head': bool(what.representation_size),
    'model without position embeddings': not (
      what.position_embeddings or rotates
    ),
    f'classifier {what.pooling!r}': what.pooling not in POOLS,
    'projection before its head': bool(module.projection),
    'distillation token without a second head': module.distillation == 'token',
    'distillation token in such a model': distils
    and (what.pooling != 'token' or rotates or bool(module.num_registers)),
    f'attention with biases {biases!r} alone': biases
    not in (('qv', '') if rotates else ('qkv', '')),
    'LayerNorm before the blocks unless its patches have no bias': has_patch_bias
    == bool(encoder.get('first_norm')),
    'gated MLP in its attention pooling': pools_by_attention
    and activation == 'swiglu',
    'attention pooling beside rotations': rotates and pools_by_attention,
    'activation but the exact GELU beside rotations': rotates
    and (activation == 'quick_gelu' or not encoder.get('exact_gelu')),
    'causal attention': bool(block.get('causal')),
    'model without a LayerNorm after its blocks': not what.ends_with_norm,
  }


def described(module: Any, what: spec.ModelSpec) -> tuple[str, dict[str, Any]]:
  """Returns the architecture of a ViT without a ResNet, and its arguments."""
  encoder = module.transformer or {}
  block = encoder.get('block', {})
  patch, is_gated = what.patch_size, block.get('activation') == 'swiglu'
  sizes = {
    'patch_size': patch[0] if patch[0] == patch[1] else list(patch),
    'embed_dim': what.width,
    'depth': what.depth,
    'num_heads': what.num_heads,
  }
  pooling = {
    'class_token': what.has_class_token,
    'global_pool': POOLS[what.pooling],
  }
  mlp_dim = encoder['mlp_dim']
  if module.rotary_base:
    return architectures.DINOV3, {
      **sizes,
      **pooling,
      'mlp_ratio': _ratio(mlp_dim, what.width),
      'use_fc_norm': module.fc_norm,
      'num_reg_tokens': module.num_registers,
      'qkv_bias': bool(block.get('biases', 'qkv')),
      'init_values': block.get('layer_scale'),
      'swiglu_mlp': is_gated,
      'swiglu_align_to': int(is_gated),
      'rope_temperature': module.rotary_base,
      'use_abs_pos_emb': bool(what.position_embeddings),
      'no_embed_class': not what.num_positioned,
      'use_pre_transformer_norm': bool(encoder.get('first_norm')),
    }
  parts = {
    'reg_tokens': module.num_registers,
    'no_embed_class': not what.num_positioned and bool(what.num_prefix_tokens),
    'pre_norm': bool(encoder.get('first_norm')),
    'qkv_bias': bool(block.get('biases', 'qkv')),
    'init_values': block.get('layer_scale'),
  }
  architecture = _architecture(module, encoder, is_gated)
  if architecture == PLAIN:
    parts = {k: v for k, v in parts.items() if v != _USUAL[k]}
  mlp_width = 2 * mlp_dim if is_gated else mlp_dim
  return architecture, {
    **sizes,
    **pooling,
    'fc_norm': module.fc_norm,
    'mlp_ratio': _ratio(mlp_width, what.width),
    **parts,
  }


def _architecture(module: Any, encoder: Any, is_gated: bool) -> str:
  if is_gated:
    return _GATED
  if module.distillation:
    return _DISTILLED
  epsilon = encoder.get('layer_norm_epsilon')
  return _EPSILON_1E5 if epsilon == 1e-5 else PLAIN


def _ratio(mlp_dim: int, width: int) -> float:
  """Returns the ratio for which int(width * ratio) is `mlp_dim`."""
  ratio = mlp_dim / width
  return ratio if int(width * ratio) == mlp_dim else (mlp_dim + 0.5) / width
