"""Settings of a run with nothing left open: defaults, stages, durations in steps."""

from collections.abc import Collection, Mapping
import math
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
  'pp.interpolation': 'bilinear',
}

# Settings that may differ from stage to stage.
STAGE_SETTINGS = (
  'total_steps',
  'total_epochs',
  'warmup_steps',
  'warmup_epochs',
  'cooldown_steps',
  'cooldown_epochs',
  'base_lr',
  'decay_type',
  'timescale',
  'optimizer',
  'momentum',
  'beta2',
  'optim_dtype',
  'grad_norm_clip',
  'weight_decay',
  'weight_decay_on',
  'layer_decay',
  'sam_rho',
  'freeze',
)

# Setting in steps to the setting in epochs, which overrides it.
EPOCHS = {
  'total_steps': 'total_epochs',
  'warmup_steps': 'warmup_epochs',
  'cooldown_steps': 'cooldown_epochs',
  'eval_every': 'eval_every_epochs',
  'checkpoint_every': 'checkpoint_every_epochs',
}
_INTERVALS = ('eval_every', 'checkpoint_every')


def complete(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
  """Returns a locked copy of a config that may be in the official style.

  Official run files replace `config.pp` by a group of a few settings, and name the
  folder of the weights but not the weights.

  Raises:
    errors.UserError: if `config.pp` is missing or has an unknown setting.
  """
  if 'pp' not in config:
    raise errors.UserError(
      f'config.pp is missing, so these settings do not train: config.trainer is'
      f' {config.get("trainer")!r}. vit-jax train runs them.'
    )
  # References would change the caller's settings too.
  config = config.copy_and_resolve_references().unlock()
  config.pp = images.complete(config.pp)
  if config.pretrained is None:
    named = config.pretrained_dir is not None and config.model
    config.pretrained = config.model.model_name if named else ''
  if config.pretrained_dir is None:
    config.pretrained_dir = 'checkpoints'
  return config.lock()


def evaluates(config: ml_collections.ConfigDict) -> bool:
  """Whether a run evaluates its test images."""
  every = config.eval_every_epochs
  return bool(config.eval_every if every is None else every)


def with_defaults(
  config: ml_collections.ConfigDict, known: Mapping[str, Any] | None = None
) -> ml_collections.ConfigDict:
  """Returns a copy with all settings that weights or presets decide.

  `known` has `layer_norm_epsilon`, `exact_gelu`, `pp.mean`, `pp.std`,
  `pp.interpolation`, `pp.crop` and `model` of the weights, of two towers also
  `pp.resize_test`; None or missing if they do not decide.

  Raises:
    errors.UserError: if neither config nor weights decide the model or the size of
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
    if config.pp.resize_test is None:
      config.pp.resize_test = known.get('pp.resize_test')
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


def steps_first(
  config: ml_collections.ConfigDict, given: Collection[str]
) -> ml_collections.ConfigDict:
  """Returns a copy without epochs where the command line, `given`, has steps."""
  config = config.copy_and_resolve_references()
  for name, epochs in EPOCHS.items():
    if name in given and epochs not in given:
      config[epochs] = None
  return config


def stages(
  config: ml_collections.ConfigDict,
) -> list[ml_collections.ConfigDict]:
  """Returns the config of each stage; its `total_steps` are those of the stage.

  Raises:
    errors.UserError: if a stage has a setting that is not in `STAGE_SETTINGS`, or
      a value of another type.
  """
  if not config.stages:
    return [config]
  if not isinstance(config.stages, tuple | list) or not all(
    hasattr(changes, 'keys') for changes in config.stages
  ):
    raise errors.UserError(
      f'config.stages is {config.stages!r}, must be a tuple of dicts of settings'
      f" such as ({{'total_steps': 100, 'base_lr': 0.1}},)."
    )
  found = []
  for number, changes in enumerate(config.stages, start=1):
    if unknown := sorted(set(changes) - set(STAGE_SETTINGS)):
      raise errors.UserError(
        f'config.stages has {unknown[0]!r} in stage {number}, which is not one'
        f' of {", ".join(STAGE_SETTINGS)}.'
      )
    stage = config.copy_and_resolve_references()
    stage.stages = ()
    for name, value in changes.items():
      try:
        stage[name] = value
      except TypeError as e:
        raise errors.UserError(
          f'config.stages, stage {number}: {name} is {value!r}, must be like'
          f' {config[name]!r}.'
        ) from e
      if name in EPOCHS:  # Steps of a stage come before epochs of the run.
        stage[EPOCHS[name]] = None
    found.append(stage)
  return found


def in_steps(
  config: ml_collections.ConfigDict, num_examples: int
) -> ml_collections.ConfigDict:
  """Returns a copy with all durations in steps; stages add up to `total_steps`.

  An epoch has `num_examples` training images. Intervals are rounded up, so that the
  last one does not end a few steps before the run does.
  """

  def steps(name: str, epochs: float) -> int:
    if not epochs:
      return 0
    exact = epochs * num_examples / config.batch
    # 0.07 * 100 is a little more than 7.
    whole = math.ceil(exact - 1e-6) if name in _INTERVALS else round(exact)
    return max(1, whole)

  config = config.copy_and_resolve_references()
  changes = [dict(stage) for stage in config.stages]
  for name, epochs in EPOCHS.items():
    if config[epochs] is not None:
      config[name] = steps(name, config[epochs])
    for stage in changes:
      if (of_stage := stage.pop(epochs, None)) is not None:
        stage[name] = steps(name, of_stage)
  for stage in changes:  # They would inherit the sum.
    stage.setdefault('total_steps', config.total_steps)
  if changes:
    config.stages = tuple(changes)
    config.total_steps = sum(stage.total_steps for stage in stages(config))
  return config
