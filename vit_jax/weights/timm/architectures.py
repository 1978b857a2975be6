"""What timm's architectures imply, which a `config.json` need not repeat."""

from collections.abc import Mapping
import re
from typing import Any

from vit_jax.configs import spec
from vit_jax.weights import record as weights_lib

EPSILON = 1e-6  # LayerNorm's, unless the architecture has another one.

DINOV3 = 'vit_base_patch16_dinov3'  # An `Eva`, as all of DINOv3.

# A key of the arguments here; in timm, no config.json can give it.
NORM_EPSILON = 'norm_epsilon'

# How timm resizes position embeddings. The official models keep their own way.
_RESIZE = 'bicubic_antialias'
_RESIZED = r'deit.*|vit_.*_(siglip|clip|dinov2)(_.*)?'

_GELU_TANH = {'act_layer': 'gelu_tanh'}
_DINOV3 = {
  'global_pool': 'avg',
  'init_values': 1e-5,
  'rope_type': 'dinov3',
  'rope_temperature': 100.0,
  'rope_rotate_half': True,
  'use_rot_pos_emb': True,
  'use_abs_pos_emb': False,
  NORM_EPSILON: 1e-5,
}

# Arguments that neither arrays nor usual values tell. All rows that match count.
_IMPLIED: tuple[tuple[str, dict[str, Any]], ...] = (
  (r'test_vit[24]?', {'num_heads': 2}),
  (r'test_vit[34]', {'num_heads': 3}),
  (r'test_vit3', {'pool_include_prefix': True}),
  (r'vit_base_patch16_gap_224', {'num_heads': 16}),
  (r'vit_giantopt_.*', {'num_heads': 16}),
  (r'.*_clip_.*', {NORM_EPSILON: 1e-5}),
  (r'.*_quickgelu_.*', {'act_layer': 'quick_gelu'}),
  (r'vit_base_patch32_siglip_(gap_)?256', _GELU_TANH),
  (r'vit_large_patch16_siglip_(gap_)?512', _GELU_TANH),
  (r'vit_(so400m|giantopt)_patch16_siglip_.*', _GELU_TANH),
  (r'deit3_.*', {'init_values': 1e-6}),
  (r'vit_\w+_dinov3(_qkvb)?', _DINOV3),
  (r'vit_huge_plus_\w+_dinov3(_qkvb)?', {'num_heads': 20}),
  (r'vit_7b_\w+_dinov3', {'num_heads': 32}),
)

# Values of arguments, by default the first, with which models can be read.
_READABLE: dict[str, tuple[Any, ...]] = {
  'qk_norm': (False, None),
  'scale_attn_norm': (False, None),
  'scale_mlp_norm': (False, None),
  'scale_mlp': (False, None),
  'scale_attn_inner': (False, None),
  'attn_only_layer_scale': (False, None),
  'pool_include_prefix': (False, None),
  'dynamic_img_pad': (False, None),
  'use_post_norm': (False, None),
  'final_norm': (True, None),
  'proj_bias': (True, None),
  'attn_layer': ('', 'attn', None),
  'norm_layer': (None, 'layernorm'),
  'embed_norm_layer': (None,),
  'num_kv_heads': (None,),
  'attn_pool_num_heads': (None,),
  'attn_pool_mlp_ratio': (None,),
  'attn_type': ('eva', None),
}

# Those with which an Eva is a DINOv3.
_ROTATIONS: dict[str, tuple[Any, ...]] = {
  'rope_type': ('cat', 'dinov3'),
  'use_rot_pos_emb': (False, True),
  'use_abs_pos_emb': (True, False),
  'rope_rotate_half': (False, True),
  'rope_grid_offset': (0.0, 0),
  'rope_grid_indexing': ('ij',),
  # An Eva's attention pooling sees all tokens; ours the patches alone.
  'global_pool': ('avg', 'avg', 'token'),
}


def arguments(config: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the arguments of a model in timm, as far as they are said.

  Later ones replace earlier ones: those that the architecture implies, the pooling
  of the `config.json` and its `model_args`.
  """
  known: dict[str, Any] = {}
  name = name_of(config)
  for pattern, implied in _IMPLIED:
    if re.fullmatch(pattern, name):
      known |= implied
  if 'global_pool' in config:
    known['global_pool'] = config['global_pool']
  return known | (config.get('model_args') or {})


def name_of(config: Mapping[str, Any]) -> str:
  """Returns the architecture of a `config.json`, without the tag of its weights."""
  return str(config.get('architecture', '')).partition('.')[0]


def posemb_resize(config: Mapping[str, Any], what: spec.ModelSpec) -> str:
  """Returns how position embeddings of a model are resized, if it has any."""
  more_tokens = what.num_prefix_tokens > what.has_class_token
  newer = more_tokens or what.pooling in ('map', 'token_map')
  if newer or re.fullmatch(_RESIZED, name_of(config)):
    return _RESIZE if what.position_embeddings else 'zoom'
  return 'zoom'


def check(known: Mapping[str, Any], *, eva: bool) -> None:
  """Raises a `WeightsError` if an argument says what no model here does.

  Args:
    known: from `arguments`.
    eva: whether the model is an `Eva`; of those, only DINOv3 is read.
  """
  for name, values in _READABLE.items():
    if known.get(name, values[0]) not in values:
      raise weights_lib.WeightsError(
        f'has {name}={known[name]!r} of timm, which no model here has.'
      )
  if not eva:
    return
  for name, values in _ROTATIONS.items():
    default = values[0]
    if known.get(name, default) not in (values[1:] or values):
      raise weights_lib.WeightsError(
        f'is an Eva of timm, but only the Evas of DINOv3 can be read: it has'
        f' {name}={known.get(name, default)!r}.'
      )
