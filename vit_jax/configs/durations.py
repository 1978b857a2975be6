"""Durations in epochs and steps, of a run and of its stages."""

from collections.abc import Collection

import ml_collections

from vit_jax.runtime import errors

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


def steps_first(
  config: ml_collections.ConfigDict, given: Collection[str]
) -> ml_collections.ConfigDict:
  """Returns a copy without epochs where the command line gives steps.

  Args:
    config: settings.
    given: names of the settings on the command line.
  """
  config = config.copy_and_resolve_references()
  for name, epochs in EPOCHS.items():
    if name in given and epochs not in given:
      config[epochs] = None
  return config


def split(
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
  stages = []
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
    stages.append(stage)
  return stages


def in_steps(
  config: ml_collections.ConfigDict, num_examples: int
) -> ml_collections.ConfigDict:
  """Returns a copy with all durations in steps; stages add up to `total_steps`.

  Args:
    config: settings.
    num_examples: training images of an epoch.
  """

  def steps(epochs: float) -> int:
    return max(1, round(epochs * num_examples / config.batch)) if epochs else 0

  config = config.copy_and_resolve_references()
  stages = [dict(stage) for stage in config.stages]
  for name, epochs in EPOCHS.items():
    if config[epochs] is not None:
      config[name] = steps(config[epochs])
    for stage in stages:
      if epochs in stage:
        stage[name] = steps(stage.pop(epochs))
  if stages:
    config.stages = tuple(stages)
    config.total_steps = sum(stage.total_steps for stage in split(config))
  return config
