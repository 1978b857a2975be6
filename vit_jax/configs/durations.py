"""How long a run and its stages take: in steps, or in epochs."""

from collections.abc import Collection, Sequence
from typing import Any

import ml_collections

from vit_jax.runtime import errors

# What may differ from stage to stage.
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

# By the setting in steps: the one in epochs, which comes first.
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
  """Returns a copy without the epochs for which the command line gives steps.

  Args:
    config: settings.
    given: names of those on the command line.
  """
  config = config.copy_and_resolve_references().unlock()
  for name, epochs in EPOCHS.items():
    if name in given and epochs not in given:
      config[epochs] = None
  return config.lock()


def _stages(config: ml_collections.ConfigDict) -> Sequence[Any]:
  if not isinstance(config.stages, tuple | list) or not all(
    hasattr(changes, 'keys') for changes in config.stages
  ):
    raise errors.UserError(
      f'config.stages is {config.stages!r}, must be a tuple of dicts of settings,'
      f" ({{'total_steps': 100, 'base_lr': 0.1}},) say."
    )
  return config.stages


def split(
  config: ml_collections.ConfigDict,
) -> list[ml_collections.ConfigDict]:
  """Returns the config of each stage; `total_steps` is that of the stage.

  Raises:
    errors.UserError: if a stage has other settings than `STAGE_SETTINGS`, or a
      value of another type.
  """
  if not config.stages:
    return [config]
  stages = []
  for number, changes in enumerate(_stages(config), start=1):
    unknown = sorted(set(changes) - set(STAGE_SETTINGS))
    if unknown:
      raise errors.UserError(
        f'config.stages has {unknown[0]!r} in stage {number}, which is not one'
        f' of {", ".join(STAGE_SETTINGS)}.'
      )
    stage = config.copy_and_resolve_references().unlock()
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
  """Returns a copy with all durations in steps, and the sum of the stages.

  Args:
    config: settings.
    num_examples: of the training split.
  """
  config = config.copy_and_resolve_references().unlock()
  config.stages = tuple(
    _stage_in_steps(dict(stage), config.batch, num_examples)
    for stage in config.stages
  )
  for name, epochs in EPOCHS.items():
    if config[epochs] is not None:
      config[name] = _steps(config[epochs], config.batch, num_examples)
  if config.stages:
    config.total_steps = sum(stage.total_steps for stage in split(config))
  return config.lock()


def _stage_in_steps(stage: dict, batch: int, num_examples: int) -> dict:
  for name, epochs in EPOCHS.items():
    if epochs in stage:
      stage[name] = _steps(stage.pop(epochs), batch, num_examples)
  return stage


def _steps(epochs: int | float, batch: int, num_examples: int) -> int:
  return max(1, round(epochs * num_examples / batch)) if epochs else 0
