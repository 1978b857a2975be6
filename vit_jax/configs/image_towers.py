"""Refuses sizes and parts of an image tower that cannot work."""

from collections.abc import Mapping
from typing import Any

from vit_jax.configs import common
from vit_jax.configs import rules
from vit_jax.configs import spec
from vit_jax.runtime import errors

_MIXER_SIZES = (
  'hidden_dim',
  'num_blocks',
  'tokens_mlp_dim',
  'channels_mlp_dim',
)

_SIZE = rules.integer(1, low=1)
_RATE = rules.number(0.0, low=0.0, high=0.999)

_ENCODER = {'dropout_rate': _RATE, 'attention_dropout_rate': _RATE}

_RESNET = {
  'num_layers': rules.such(
    (),
    lambda units: all(isinstance(n, int) and n > 0 for n in units),
    'a tuple with the number of units of each stage',
  ),
  'width_factor': rules.such(
    1,
    lambda x: x > 0 and 64 * x % 32 == 0,
    'a multiple of 0.5, as GroupNorm has groups of 32 channels',
  ),
}

_FIELDS: dict[str, rules.Setting] = {
  'distillation': rules.one_of(*spec.DISTILLATIONS),
  'num_registers': rules.integer(0),
  'num_positioned': rules.integer(None, kind=int),
  'representation_size': rules.integer(None, kind=int),
  'fc_norm': rules.one_of(False, True),
  'rotary_base': rules.number(None, low=1.0, kind=float),
  'projection': rules.integer(None, low=1, kind=int),
  'posemb_resize': rules.one_of(*spec.RESIZES),
}

_BLOCK: dict[str, rules.Setting] = {
  'activation': rules.one_of(*spec.ACTIVATIONS),
  'layer_scale': rules.number(None, kind=float),
  'biases': rules.such(
    'qkv',
    lambda x: isinstance(x, str) and x in spec.BIASES,
    f'one of {spec.BIASES}',
  ),
  'causal': rules.one_of(False, True),
}


def validate(prefix: str, tower: Any) -> None:
  """Checks the sizes and parts of an image tower.

  Args:
    prefix: name of the tower, 'config.model' or 'config.model.image'.
    tower: its config.

  Raises:
    errors.UserError: with the setting, its value, and what it may be.
  """
  _validate_patches(f'{prefix}.patches', tower.get('patches'))
  if spec.family(tower) == 'mixer':
    for size in _MIXER_SIZES:
      _SIZE.check(tower.get(size), f'{prefix}.{size}')
  else:
    _validate_vit(prefix, tower)


def _validate_patches(name: str, patches: Any) -> None:
  patches = patches or {}
  if unknown := sorted(set(patches) - {'size', 'bias'}):
    raise errors.UserError(
      f'{name} has no setting {unknown[0]!r}; it has size and bias.'
    )
  size = patches.get('size')
  sides = size if isinstance(size, tuple | list) else ()
  if len(sides) != 2 or not all(isinstance(n, int) and n > 0 for n in sides):
    raise errors.UserError(
      f'{name}.size is {size!r}, must be (height, width) in pixels.'
    )


def _validate_vit(prefix: str, model: Any) -> None:
  """Checks each setting alone, then those that must agree."""
  _SIZE.check(model.get('hidden_size'), f'{prefix}.hidden_size')
  for name, setting in _FIELDS.items():
    if name in model:
      setting.check(model[name], f'{prefix}.{name}')
  if model.get('resnet'):
    for name, setting in _RESNET.items():
      setting.check(model.resnet.get(name), f'{prefix}.resnet.{name}')
  encoder = model.transformer
  if encoder is not None:
    _validate_encoder(f'{prefix}.transformer', encoder)
  pooled = tuple(x for x in spec.CLASSIFIERS if 'unpooled' not in x)
  pooled = ('gap',) if encoder is None else pooled
  classifier = model.get('classifier', 'token')
  if classifier not in pooled:
    raise errors.UserError(
      f'{prefix}.classifier is {classifier!r}, must be one of'
      f' {pooled}: training and evaluation need one output per image.'
    )
  _validate_tokens(prefix, model)
  if encoder is not None:
    _validate_heads(prefix, model)


def _validate_encoder(prefix: str, encoder: Any) -> None:
  for name in ('mlp_dim', 'num_heads', 'num_layers'):
    _SIZE.check(encoder.get(name), f'{prefix}.{name}')
  # Weights, and some run files, have settings such as `layer_norm_epsilon` here.
  possible = {**_ENCODER, **common.RULES}
  for name in sorted(set(encoder) & set(possible)):
    possible[name].check(encoder[name], f'{prefix}.{name}')
  block: Mapping[str, Any] | None = encoder.get('block', {})
  if block is None:
    raise errors.UserError(f'{prefix}.block is None: leave it out instead.')
  for name, value in block.items():
    if name not in _BLOCK:
      hint = errors.did_you_mean(name, _BLOCK)
      raise errors.UserError(
        f'{prefix}.block has no setting {name!r}; it has'
        f' {", ".join(_BLOCK)}.{hint}'
      )
    _BLOCK[name].check(value, f'{prefix}.block.{name}')


def _validate_tokens(prefix: str, model: Any) -> None:
  """Checks that the tokens before those of the patches can be of use."""
  encoder, what = model.transformer, spec.of(model)
  if what.num_positioned > what.num_prefix_tokens:
    raise errors.UserError(
      f'{prefix}.num_positioned is {what.num_positioned}, but there are'
      f' {what.num_prefix_tokens} tokens before those of the patches.'
    )
  if model.get('distillation') == 'head' and model.get('fc_norm'):
    raise errors.UserError(
      f"{prefix}.distillation is 'head' and fc_norm True: the head of the"
      f' distillation token would read it without a LayerNorm. Set fc_norm=False.'
    )
  if encoder is None and (what.num_prefix_tokens or model.get('rotary_base')):
    raise errors.UserError(
      f'{prefix} has tokens or rotations, but no transformer that reads them.'
    )
  causal = encoder is not None and encoder.get('block', {}).get('causal')
  if causal and what.pooling in ('token', 'token_mean'):
    raise errors.UserError(
      f'{prefix}.transformer.block.causal is True: the class token comes first, so'
      f" it would see no patch. Set {prefix}.classifier='gap'."
    )


def _validate_heads(prefix: str, model: Any) -> None:
  """Checks that the width can be split over the heads of attention."""
  encoder, width = model.transformer, model.hidden_size
  if width % encoder.num_heads:
    raise errors.UserError(
      f'{prefix}.transformer.num_heads is {encoder.num_heads},'
      f' must divide {prefix}.hidden_size, {width}.'
    )
  if not model.get('rotary_base'):
    return
  if width // encoder.num_heads % 4:
    raise errors.UserError(
      f'{prefix}.rotary_base is {model.rotary_base}: rotations need heads whose'
      f' width 4 divides, not {width // encoder.num_heads}.'
    )
  if encoder.get('patch_dropout'):
    raise errors.UserError(
      f'{prefix}.transformer.patch_dropout is {encoder.patch_dropout}, but patches'
      f' cannot be left out of a ViT with rotary position embeddings.'
    )
