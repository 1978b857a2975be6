"""Refuses settings that cannot work before anything is loaded."""

from collections.abc import Sequence
import functools
import operator
from typing import Any

import ml_collections

from vit_jax.configs import common
from vit_jax.configs import image_towers
from vit_jax.configs import images
from vit_jax.configs import resolved
from vit_jax.configs import rules
from vit_jax.configs import spec
from vit_jax.runtime import errors

_NOT_OF_LIT = (
  'stochastic_depth_rate',
  'patch_dropout',
  'head_bias_init',
  'lora_rank',
  'distill.teacher',
  'evaluators',
  'adapt_channels',
  'adapt_patches',
  'pp.shots',
  'pp.balance_classes',
  'pp.channels',
)

_NOT_OF_RESNETS = ('stochastic_depth_rate', 'remat', 'scan_layers')


# Metrics that need labels.
_OF_CLASSES = ('balanced_accuracy_test', 'f1_test', 'kappa_test')


def validate(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
  """Returns a completed copy; checks settings alone and those that must agree.

  Raises:
    errors.UserError: with the setting, its value, and what it may be.
  """
  config = resolved.complete(config)
  for name, rule in common.RULES.items():
    if name not in resolved.STAGE_SETTINGS:
      rule.check(_value(config, name), f'config.{name}')
  _validate_stages(config)
  _validate_batches(config)
  images.validate(config.pp, has_weights=bool(config.pretrained))
  _validate_model(config)
  if config.trainer == 'contrastive' and config.best_metric in _OF_CLASSES:
    raise errors.UserError(
      f'config.best_metric is {config.best_metric!r}, but captions have no'
      f" classes: choose 'accuracy_test', 'top5_test' or 'loss_test'."
    )
  if config.trainer == 'sweep':
    _validate_sweep(config)
  return config


def _value(config: ml_collections.ConfigDict, name: str) -> Any:
  return functools.reduce(operator.getitem, name.split('.'), config)


def _validate_stages(config: ml_collections.ConfigDict) -> None:
  """Checks the settings of each stage; a run without stages is one stage."""
  for number, stage in enumerate(resolved.stages(config), start=1):
    where = f'config.stages, stage {number}: ' if config.stages else 'config.'
    for name in resolved.STAGE_SETTINGS:
      common.RULES[name].check(stage[name], f'{where}{name}')
    if stage.total_steps is None and stage.total_epochs is None:
      raise errors.UserError(
        f'{where}total_steps must be set: config.total_steps=...'
      )


def _validate_batches(config: ml_collections.ConfigDict) -> None:
  if config.batch % config.accum_steps:
    raise errors.UserError(
      f'config.accum_steps is {config.accum_steps}, must divide config.batch,'
      f' {config.batch}.'
    )
  least = images.fewest_in_a_part(config.pp)
  if config.batch < least * config.accum_steps:
    raise errors.UserError(
      f'config.accum_steps is {config.accum_steps}, as many as config.batch:'
      f' config.pp.mixup and cutmix mix the images of a part of the batch.'
    )


def _validate_sweep(config: ml_collections.ConfigDict) -> None:
  if 'sweep' not in config:
    raise errors.UserError(
      "config.trainer is 'sweep', but there is no config.sweep: see"
      ' common.with_sweep and configs/sweep.py.'
    )
  rates, seeds = config.sweep.base_lr, config.sweep.seeds
  # The folder of a run has its rate in this form.
  called = {'base_lr': [f'{rate:g}' for rate in rates], 'seeds': seeds}
  for name, values in called.items():
    if not values or len(set(values)) < len(values):
      also = ' in its first six digits' if name == 'base_lr' else ''
      raise errors.UserError(
        f'config.sweep.{name} is {config.sweep[name]!r}, must have one value or'
        f' more, each once{also}.'
      )
  for rate in config.sweep.base_lr:
    common.RULES['base_lr'].check(rate, 'config.sweep.base_lr')
  for seed in config.sweep.seeds:
    common.RULES['seed'].check(seed, 'config.sweep.seeds: seed')
  for name in ('train', 'holdout'):
    if config.sweep[name]:  # Empty: see `sweep.held_out`.
      common.RULES['pp.train'].check(config.sweep[name], f'config.sweep.{name}')
  for number, stage in enumerate(config.stages, start=1):
    if 'base_lr' in stage:
      raise errors.UserError(
        f'config.stages, stage {number}: base_lr is {stage["base_lr"]}, which'
        f' config.sweep.base_lr would not change. Leave it out.'
      )


def _validate_model(config: ml_collections.ConfigDict) -> None:
  model = config.model
  if not model and config.pretrained:
    return  # The weights decide it.
  if not model:
    raise errors.UserError(
      'config.model must be set: see common.with_model and configs/digits.py.'
    )
  tower = spec.image_tower(model)
  name = 'config.model.image' if spec.has_texts(model) else 'config.model'
  image_towers.validate(name, tower)
  what, trainer = spec.of(model), config.trainer
  if trainer not in ('evaluate', 'sweep') and (
    (trainer == 'contrastive') != what.has_texts
  ):
    raise errors.UserError(
      f'config.trainer is {trainer!r}, the model {model.model_name}. LiT models'
      f" need 'contrastive', other models cannot use it: see configs/lit_folder.py."
    )
  if what.has_texts:
    _validate_lit(config)
  has_positions = what.position_embeddings and not what.has_texts
  if config.posemb != 'learn' and not has_positions:
    raise errors.UserError(
      f'config.posemb is {config.posemb!r}, but only a ViT has positions that can'
      f' be fixed, not {what.name}.'
    )
  if not what.num_heads and config.attention == 'cudnn':
    raise errors.UserError(
      f"config.attention is 'cudnn', but {what.name} has no attention. Try 'auto'."
    )
  if config.patch_dropout and (not what.num_heads or tower.get('rotary_base')):
    raise errors.UserError(
      f'config.patch_dropout is {config.patch_dropout}, but only a ViT without'
      f' rotary position embeddings can leave patches out, not {what.name}.'
    )
  if config.posemb == 'sincos2d' and (what.width % 4 or what.width < 8):
    raise errors.UserError(
      f"config.posemb is 'sincos2d', which needs a config.model.hidden_size of 8 or"
      f' more that 4 divides, not {what.width}.'
    )
  if spec.encoder(model) is None:
    _refuse_set(config, _NOT_OF_RESNETS, 'models without a transformer')
  crop, patch = config.pp.crop, what.patch_size
  if crop is None:
    return
  if 0 in what.grid(resolved.image_size(config)):
    raise errors.UserError(
      f'config.pp.crop is {crop!r}, must hold a patch of {patch[0]}x{patch[1]}'
      f' ({name}.patches.size).'
    )


def _validate_lit(config: ml_collections.ConfigDict) -> None:
  model = config.model
  if not config.pretrained:
    raise errors.UserError(
      "config.pretrained is '', must name the weights of the image tower, a ViT,"
      ' or of both towers.'
    )
  if config.accum_steps != 1:
    raise errors.UserError(
      f'config.accum_steps is {config.accum_steps}, must be 1: the texts of a'
      f' part of the batch would be compared with fewer images.'
    )
  _refuse_set(config, _NOT_OF_LIT, 'LiT models')
  if images.mixes(config.pp):
    raise errors.UserError(
      'config.pp mixes images (mixup, cutmix, or mixup by augmentation): mixed images'
      ' have no texts. Set both to 0.'
    )
  image_dim, text_dim = model.out_dim
  width = image_dim or model.image.get('projection')
  width = width or model.image.hidden_size
  if width != text_dim:
    raise errors.UserError(
      f'config.model.out_dim is {tuple(model.out_dim)}: embeddings of images have'
      f' width {width}, those of texts {text_dim}. They must be equal.'
    )
  rules.number(2, low=2).check(model.pp.max_len, 'config.model.pp.max_len')
  rules.number(None, low=1e-3, kind=float).check(
    model.get('temperature_max'), 'config.model.temperature_max'
  )


def _refuse_set(
  config: ml_collections.ConfigDict, names: Sequence[str], where: str
) -> None:
  """Raises `errors.UserError` at a setting without effect that is not off."""
  for name in names:
    if value := _value(config, name):
      raise errors.UserError(
        f'config.{name} is {value!r}, but has no effect in {where}.'
      )
