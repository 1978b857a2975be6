"""Refuses settings that cannot work, before anything is loaded."""

from collections.abc import Sequence
import re

import ml_collections

from vit_jax.configs import choices
from vit_jax.configs import durations
from vit_jax.configs import images
from vit_jax.configs import spec
from vit_jax.runtime import errors

_NOT_OF_LIT = (
  'stochastic_depth_rate',
  'head_bias_init',
  'remat',
  'scan_layers',
  'evaluators',
  'adapt_channels',
  'adapt_patches',
  'pp.shots',
  'pp.balance_classes',
  'pp.channels',
)

_NOT_OF_RESNETS = ('stochastic_depth_rate', 'remat', 'scan_layers')

_MIXER_SIZES = (
  'hidden_dim',
  'num_blocks',
  'tokens_mlp_dim',
  'channels_mlp_dim',
)

_LOGGERS = ('tensorboard', 'wandb', 'mlflow')

EVALUATOR = re.compile(r'([1-9]\d*)shot|knn|linear')

_SPLIT = re.compile(r'\w+(\[[^\[\]]*\])?(\+\w+(\[[^\[\]]*\])?)*')


def validate(config: ml_collections.ConfigDict) -> None:
  """Checks every setting that can be checked alone, and those that must agree.

  Raises:
    errors.UserError: with the setting, its value, and what it may be.
  """
  for name in (*choices.CHOICES, *choices.RANGES):
    if name not in durations.STAGE_SETTINGS:
      choices.check(name, config[name])
  _validate_stages(config)
  _validate_batches(config)
  for name in config.evaluators:
    if not EVALUATOR.fullmatch(name):
      raise errors.UserError(
        f"config.evaluators has {name!r}, must be of 'knn', 'linear', '10shot' or"
        f' another number of shots.'
      )
  for name in config.loggers:
    if name not in _LOGGERS:
      raise errors.UserError(
        f'config.loggers has {name!r}, must be of {", ".join(_LOGGERS)}.'
      )
  _validate_images(config)
  _validate_model(config)
  if config.trainer == 'sweep':
    _validate_sweep(config)


def _validate_stages(config: ml_collections.ConfigDict) -> None:
  """Checks what may differ from stage to stage; a run without any is one."""
  for number, stage in enumerate(durations.split(config), start=1):
    where = f'config.stages, stage {number}: ' if config.stages else 'config.'
    for name in durations.STAGE_SETTINGS:
      choices.check(name, stage[name], where)
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
  steps = config.profile_steps
  if steps and not (len(steps) == 2 and 1 <= steps[0] <= steps[1]):
    raise errors.UserError(
      f'config.profile_steps is {steps}, must be (first, last), two steps from 1'
      f' on, or () for no trace.'
    )


def _validate_images(config: ml_collections.ConfigDict) -> None:
  pp = config.pp
  images.validate(pp, has_weights=bool(config.pretrained))
  if images.mixes(pp) and config.batch == config.accum_steps:
    raise errors.UserError(
      f'config.accum_steps is {config.accum_steps}, as many as config.batch:'
      f' config.pp.mixup and cutmix mix the images of a part of the batch.'
    )
  for name in ('train', 'test'):
    _check_split(f'config.pp.{name}', pp[name])


def _check_split(name: str, value: str) -> None:
  if not _SPLIT.fullmatch(value):
    raise errors.UserError(
      f"{name} is {value!r}, must be a split such as 'train[:98%]' or"
      f" 'train+validation'."
    )


def _validate_sweep(config: ml_collections.ConfigDict) -> None:
  if 'sweep' not in config:
    raise errors.UserError(
      "config.trainer is 'sweep', but there is no config.sweep: see"
      ' common.with_sweep and configs/sweep.py.'
    )
  for name in ('base_lr', 'seeds'):
    if not config.sweep[name]:
      raise errors.UserError(
        f'config.sweep.{name} is {config.sweep[name]!r}, must have one value or'
        f' more.'
      )
  for rate in config.sweep.base_lr:
    choices.check('base_lr', rate, 'config.sweep.')
  for seed in config.sweep.seeds:
    choices.check('seed', seed, 'config.sweep.seeds: ')
  for name in ('train', 'holdout'):
    if config.sweep[name]:  # Empty: see `common.held_out`.
      _check_split(f'config.sweep.{name}', config.sweep[name])
  for number, stage in enumerate(config.stages, start=1):
    if 'base_lr' in stage:
      raise errors.UserError(
        f'config.stages, stage {number}: base_lr is {stage["base_lr"]}, which'
        f' config.sweep.base_lr would not change. Leave it out.'
      )


def _validate_model(config: ml_collections.ConfigDict) -> None:
  model = config.model
  if not model and config.pretrained:
    return  # The weights will tell.
  if not model:
    raise errors.UserError(
      'config.model must be set: see common.with_model and configs/digits.py.'
    )
  what, trainer = spec.of(model), config.trainer
  if trainer not in ('evaluate', 'sweep') and (
    (trainer == 'contrastive') != what.has_texts
  ):
    raise errors.UserError(
      f'config.trainer is {trainer!r}, the model {model.model_name}. LiT models,'
      f" and they alone, are trained by 'contrastive': see configs/lit_folder.py."
    )
  name, tower = 'config.model', spec.image_tower(model)
  if what.has_texts:
    _validate_lit(config)
    name = 'config.model.image'
  patch = what.patch_size
  if len(patch) != 2 or min(patch) < 1:
    raise errors.UserError(
      f'{name}.patches.size is {patch}, must be (height, width) in pixels.'
    )
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
  if config.posemb == 'sincos2d' and what.width % 4:
    raise errors.UserError(
      f"config.posemb is 'sincos2d', which needs a config.model.hidden_size that 4"
      f' divides, not {what.width}.'
    )
  _VALIDATE_SIZES[spec.family(tower)](name, tower)
  if spec.encoder(model) is None:
    _refuse_set(config, _NOT_OF_RESNETS, 'models without a transformer')
  crop = config.pp.crop
  if crop is None:
    return
  size = (crop, crop) if isinstance(crop, int) else tuple(crop)
  if 0 in what.grid(size):
    raise errors.UserError(
      f'config.pp.crop is {crop!r}, must hold a patch of {patch[0]}x{patch[1]}'
      f' ({name}.patches.size).'
    )


def _validate_lit(config: ml_collections.ConfigDict) -> None:
  model = config.model
  if not config.pretrained:
    raise errors.UserError(
      "config.pretrained is '', must name the weights of the image tower, which"
      ' stay as they are: a ViT, or a LiT checkpoint with both towers.'
    )
  if config.accum_steps != 1:
    raise errors.UserError(
      f'config.accum_steps is {config.accum_steps}, must be 1: the texts of a'
      f' part of the batch would be compared with fewer images.'
    )
  _refuse_set(config, _NOT_OF_LIT, 'LiT models')
  if images.mixes(config.pp):
    raise errors.UserError(
      'config.pp mixes images (mixup, cutmix, or mixup by augmentation): texts of'
      ' mixed images are not to be had. Set both to 0.'
    )
  if config.pp.resize_test is not None:
    raise errors.UserError(
      f'config.pp.resize_test is {config.pp.resize_test}, but has no effect in LiT'
      f' models, which have an evaluation of their own.'
    )
  image_dim, text_dim = model.out_dim
  width = image_dim or model.image.hidden_size
  if width != text_dim:
    raise errors.UserError(
      f'config.model.out_dim is {tuple(model.out_dim)}: embeddings of images have'
      f' width {width}, those of texts {text_dim}. They must be equal.'
    )
  choices.check_range('config.model.pp.max_len', model.pp.max_len, 2)


def _refuse_set(
  config: ml_collections.ConfigDict, names: Sequence[str], where: str
) -> None:
  """Refuses what a kind of model cannot do, unless it is off."""
  for name in names:
    group, _, field = name.rpartition('.')
    value = (config[group] if group else config)[field]
    if value:
      raise errors.UserError(
        f'config.{name} is {value!r}, but has no effect in {where}.'
      )


def _validate_mixer(prefix: str, model: ml_collections.ConfigDict) -> None:
  for size in _MIXER_SIZES:
    choices.check_range(f'{prefix}.{size}', model[size], 1)


def _validate_vit(prefix: str, model: ml_collections.ConfigDict) -> None:
  choices.check_range(f'{prefix}.hidden_size', model.hidden_size, 1)
  pooled = ('token', 'gap', 'token_gap') if model.transformer else ('gap',)
  if model.classifier not in pooled:
    raise errors.UserError(
      f'{prefix}.classifier is {model.classifier!r}, must be one of'
      f' {pooled}: training and evaluation need one output an image.'
    )
  if model.transformer is None:
    return
  for name in ('mlp_dim', 'num_heads', 'num_layers'):
    choices.check_range(
      f'{prefix}.transformer.{name}', model.transformer[name], 1
    )
  for name in ('dropout_rate', 'attention_dropout_rate'):
    choices.check_range(
      f'{prefix}.transformer.{name}', model.transformer[name], 0.0, 0.999
    )
  if model.hidden_size % model.transformer.num_heads:
    raise errors.UserError(
      f'{prefix}.transformer.num_heads is {model.transformer.num_heads},'
      f' must divide {prefix}.hidden_size, {model.hidden_size}.'
    )


_VALIDATE_SIZES = {'vit': _validate_vit, 'mixer': _validate_mixer}
