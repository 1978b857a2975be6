"""Refuses settings that cannot work, before anything is loaded."""

import difflib
import math
import re

import ml_collections

from vit_jax import errors
from vit_jax.configs import durations
from vit_jax.configs import images
from vit_jax.configs import models

_CHOICES = {
  'trainer': ('train', 'contrastive', 'evaluate', 'sweep'),
  'dtype': ('float32', 'bfloat16'),
  'attention': ('auto', 'xla', 'cudnn'),
  'remat': ('', 'full', 'dots_saveable', 'dots_with_no_batch_dims_saveable'),
  'decay_type': ('cosine', 'linear', 'rsqrt', 'constant'),
  'optimizer': ('sgd', 'adamw', 'lamb', 'adafactor'),
  'optim_dtype': ('bfloat16', 'float32'),
  'weight_decay_on': ('kernels', 'all'),
  'posemb': ('learn', 'sincos2d'),
  'loss': ('softmax', 'sigmoid'),
  'on_bad_image': ('raise', 'skip'),
  'adapt_channels': ('', 'sum', 'repeat'),
}

# None until the pretrained weights are read.
_WITH_WEIGHTS = ('layer_norm_epsilon',)

_NOT_OF_LIT = (
  'stochastic_depth_rate',
  'head_bias_init',
  'remat',
  'scan_layers',
  'evaluators',
)

_MIXER_SIZES = (
  'hidden_dim',
  'num_blocks',
  'tokens_mlp_dim',
  'channels_mlp_dim',
)

_RANGES = {  # Smallest and largest that make sense, both included.
  'seed': (0, 2**32 - 1),
  'warmup_steps': (0, None),
  'base_lr': (0.0, None),
  'batch': (1, None),
  'batch_eval': (1, None),
  'accum_steps': (1, None),
  'grad_norm_clip': (0.0, None),
  'weight_decay': (0.0, None),
  'momentum': (0.0, 1.0),
  'beta2': (0.0, 1.0),
  'timescale': (1, None),
  'cooldown_steps': (0, None),
  'layer_decay': (1e-3, 1.0),
  'sam_rho': (0.0, None),
  'ema_decay': (0.0, 0.9999999),
  'label_smoothing': (0.0, 1.0),
  'temperature_init': (1e-3, 1e3),
  'bias_init': (-1e3, 1e3),
  'stochastic_depth_rate': (0.0, 0.999),
  'layer_norm_epsilon': (0.0, None),
  'progress_every': (0, None),
  'eval_every': (0, None),
  'checkpoint_every': (0, None),
  'keep_checkpoints': (1, None),
  'num_threads': (1, 1024),
  'num_workers': (0, 1024),
  'prefetch': (1, 1024),
}

_LOGGERS = ('tensorboard', 'wandb', 'mlflow')

EVALUATOR = re.compile(r'([1-9]\d*)shot|knn|linear')

_SPLIT = re.compile(r'\w+(\[[^\[\]]*\])?(\+\w+(\[[^\[\]]*\])?)*')


def validate(config: ml_collections.ConfigDict) -> None:
  """Checks every setting that can be checked alone, and those that must agree.

  Raises:
    errors.UserError: with the setting, its value, and what it may be.
  """
  for name, choices in _CHOICES.items():
    if config[name] not in choices:
      near = difflib.get_close_matches(str(config[name]), choices, 1)
      hint = f' Did you mean {near[0]!r}?' if near else ''
      raise errors.UserError(
        f'config.{name} is {config[name]!r}, must be one of {choices}.{hint}'
      )
  for name, (low, high) in _RANGES.items():
    value = config[name]
    if value is None and name in _WITH_WEIGHTS:
      continue
    if value is None:
      raise errors.UserError(f'config.{name} must be set: --config.{name}=...')
    _check_range(f'config.{name}', value, low, high)
  _validate_steps(config)
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


def _check_range(
  name: str,
  value: int | float,
  low: int | float,
  high: int | float | None = None,
) -> None:
  if not low <= value <= (math.inf if high is None else high):  # NaN too.
    limit = f'at least {low}' if high is None else f'from {low} to {high}'
    raise errors.UserError(f'{name} is {value}, must be {limit}.')


def _validate_steps(config: ml_collections.ConfigDict) -> None:
  for name in durations.EPOCHS.values():
    if config[name] is not None:
      _check_range(f'config.{name}', config[name], 0.0)
  if durations.has_epochs(config):
    _validate_batches(config)
    return  # Checked again when the length of an epoch is known.
  for number, stage in enumerate(durations.split(config), start=1):
    where = f'config.stages, stage {number}: ' if config.stages else 'config.'
    if stage.total_steps is None:
      raise errors.UserError(
        f'{where}total_steps must be set: --config.total_steps=...'
      )
    _check_range(f'{where}total_steps', stage.total_steps, 1)
    if stage.warmup_steps + stage.cooldown_steps >= stage.total_steps:
      cooldown = f' + {stage.cooldown_steps}' if stage.cooldown_steps else ''
      raise errors.UserError(
        f'{where}warmup_steps is {stage.warmup_steps}{cooldown}, must be less'
        f' than total_steps, {stage.total_steps}.'
      )
  _validate_batches(config)


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
  images.validate(pp)
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
    _check_range('config.sweep.base_lr', rate, *_RANGES['base_lr'])
  for seed in config.sweep.seeds:
    _check_range('config.sweep.seeds', seed, *_RANGES['seed'])
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
  name, trainer = 'config.model', config.trainer
  if trainer not in ('evaluate', 'sweep') and (trainer == 'contrastive') != (
    'text_model' in model
  ):
    raise errors.UserError(
      f'config.trainer is {trainer!r}, the model {model.model_name}. LiT models,'
      f" and they alone, are trained by 'contrastive': see configs/lit_folder.py."
    )
  if 'text_model' in model:
    _validate_lit(config)
    name, model = 'config.model.image', model.image
  patch = tuple(model.patches.size)
  if len(patch) != 2 or min(patch) < 1:
    raise errors.UserError(
      f'{name}.patches.size is {patch}, must be (height, width) in pixels.'
    )
  has_positions = name == 'config.model' and model.get('transformer')
  if config.posemb != 'learn' and not has_positions:
    raise errors.UserError(
      f'config.posemb is {config.posemb!r}, but only a ViT has positions that can'
      f' be fixed, not {config.model.model_name}.'
    )
  if 'tokens_mlp_dim' in model:
    for size in _MIXER_SIZES:
      _check_range(f'{name}.{size}', model[size], 1)
  else:
    _validate_vit(name, model)
  crop = config.pp.crop
  size = (crop, crop) if isinstance(crop, int) else tuple(crop)
  if 0 in models.patch_grid(size, patch, model.get('resnet')):
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
  for name in _NOT_OF_LIT:
    if config[name]:
      raise errors.UserError(
        f'config.{name} is {config[name]!r}, but has no effect in LiT models.'
      )
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
  _check_range('config.model.pp.max_len', model.pp.max_len, 2)


def _validate_vit(prefix: str, model: ml_collections.ConfigDict) -> None:
  _check_range(f'{prefix}.hidden_size', model.hidden_size, 1)
  pooled = ('token', 'gap', 'token_gap') if model.transformer else ('gap',)
  if model.classifier not in pooled:
    raise errors.UserError(
      f'{prefix}.classifier is {model.classifier!r}, must be one of'
      f' {pooled}: training and evaluation need one output an image.'
    )
  if model.transformer is None:
    return
  for name in ('mlp_dim', 'num_heads', 'num_layers'):
    _check_range(f'{prefix}.transformer.{name}', model.transformer[name], 1)
  for name in ('dropout_rate', 'attention_dropout_rate'):
    _check_range(
      f'{prefix}.transformer.{name}', model.transformer[name], 0.0, 0.999
    )
  if model.hidden_size % model.transformer.num_heads:
    raise errors.UserError(
      f'{prefix}.transformer.num_heads is {model.transformer.num_heads},'
      f' must divide {prefix}.hidden_size, {model.hidden_size}.'
    )
