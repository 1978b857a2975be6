"""Refuses settings of the parts of newer ViTs that cannot work."""

from collections.abc import Mapping
import math
from typing import Any

from vit_jax.configs import rules
from vit_jax.configs import spec
from vit_jax.runtime import errors

_FIELDS: dict[str, rules.Setting] = {
  'distillation': rules.one_of(*spec.DISTILLATIONS),
  'num_registers': rules.number(0, low=0),
  'num_positioned': rules.number(None, low=0, kind=int),
  'rotary_base': rules.number(None, low=1.0, kind=float),
  'projection': rules.number(None, low=1, kind=int),
  'posemb_resize': rules.one_of(*spec.RESIZES),
}

_BLOCK: dict[str, rules.Setting] = {
  'activation': rules.one_of(*spec.ACTIVATIONS),
  'layer_scale': rules.number(None, kind=float),
  'biases': rules.such(
    'qkv',
    lambda x: isinstance(x, str) and x in spec.BIASES,
    f'one of {spec.BIASES}',
    kind=str,
  ),
  'causal': rules.one_of(False, True),
}


def validate(prefix: str, model: Any) -> None:
  """Checks the settings of a ViT that the official models do not have.

  Args:
    prefix: name of the model, such as 'config.model'.
    model: its config.

  Raises:
    errors.UserError: with the setting, its value, and what it may be.
  """
  for name, setting in _FIELDS.items():
    if name in model:
      setting.check(model[name], f'{prefix}.{name}')
  encoder = model.transformer
  block: Mapping[str, Any] | None = (encoder or {}).get('block', {})
  where = f'{prefix}.transformer.block'
  if block is None:
    raise errors.UserError(f'{where} is None: leave it out instead.')
  for name, value in block.items():
    if name not in _BLOCK:
      hint = errors.did_you_mean(name, _BLOCK)
      raise errors.UserError(
        f'{where} has no setting {name!r}; it has {", ".join(_BLOCK)}.{hint}'
      )
    _BLOCK[name].check(value, f'{where}.{name}')
  what = spec.of(model)
  if what.num_positioned > what.num_prefix_tokens:
    raise errors.UserError(
      f'{prefix}.num_positioned is {what.num_positioned}, but there are'
      f' {what.num_prefix_tokens} tokens before those of the patches.'
    )
  if encoder is None and (what.num_prefix_tokens or model.get('rotary_base')):
    raise errors.UserError(
      f'{prefix} has tokens or rotations, but no transformer that reads them.'
    )
  if model.get('rotary_base') and math.gcd(what.width // what.num_heads, 4) < 4:
    raise errors.UserError(
      f'{prefix}.rotary_base is {model.rotary_base}: rotations need heads whose'
      f' width 4 divides, not {what.width // what.num_heads}.'
    )
