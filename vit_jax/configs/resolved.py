"""Fills in settings that a config leaves open."""

from collections.abc import Mapping
from typing import Any

import ml_collections

from vit_jax.configs import images
from vit_jax.runtime import errors

# Settings that pretrained weights decide where they are None, and their defaults.
_DEFAULTS = {
  'layer_norm_epsilon': 1e-6,
  'exact_gelu': False,
  'pp.mean': (0.5,),
  'pp.std': (0.5,),
}


def complete(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
  """Returns a locked copy of a config that may be in the official style.

  Official run files replace `config.pp` by a group of a few settings, and name the
  folder of the weights but not the weights.

  Raises:
    errors.UserError: if `config.pp` has an unknown setting.
  """
  # References would change the caller's settings too.
  config = config.copy_and_resolve_references().unlock()
  config.pp = images.complete(config.pp)
  if config.pretrained is None:
    named = config.pretrained_dir is not None and config.model
    config.pretrained = config.model.model_name if named else ''
  if config.pretrained_dir is None:
    config.pretrained_dir = 'checkpoints'
  return config.lock()


def with_defaults(
  config: ml_collections.ConfigDict, known: Mapping[str, Any] | None = None
) -> ml_collections.ConfigDict:
  """Returns a copy with all settings that weights or presets decide.

  Args:
    config: settings.
    known: `layer_norm_epsilon`, `exact_gelu`, `pp.mean`, `pp.std`, `pp.crop` and
      `model` of the weights; None or missing if they do not decide.

  Raises:
    errors.UserError: if neither config nor weights name the model or the size of
      its images.
  """
  config = complete(config)
  defaults = {**_DEFAULTS, **images.preset(config.pp.augmentation)}
  answers = {k: v for k, v in (known or {}).items() if v is not None}
  known = {**defaults, **answers}
  if config.model is None:
    if known.get('model') is None:
      raise errors.UserError(
        'config.model must be set: see common.with_model and configs/digits.py.'
      )
    config.model = ml_collections.ConfigDict(known['model'])
  if config.pp.crop is None:
    if known.get('pp.crop') is None:
      raise errors.UserError(
        'config.pp.crop must be set to the size of the input in pixels,'
        ' config.pp.crop=224 or (height,width): no weights decide it.'
      )
    config.pp.crop = known['pp.crop']
  for name in defaults:
    group, _, field = name.rpartition('.')
    settings = config[group] if group else config
    if settings[field] is None:
      settings[field] = known[name]
  return config


def image_size(config: ml_collections.ConfigDict) -> tuple[int, int]:
  """Returns the model's input size in pixels, (height, width)."""
  crop = config.pp.crop
  return (crop, crop) if isinstance(crop, int) else tuple(crop)
