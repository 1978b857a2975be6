"""Runs of a sweep or a cross-validation: compared with what is there, then run once."""

from collections.abc import Callable
from typing import Any

import ml_collections

from vit_jax import train as train_lib
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import hosts
from vit_jax.runtime import workdir as workdir_lib
from vit_jax.training import resolve
from vit_jax.training import same_data
from vit_jax.training import start
from vit_jax.training import teachers
from vit_jax.weights import artifact

Trainer = Callable[[ml_collections.ConfigDict, str], Any]

# More steps than any run has, so only the last one is evaluated.
_AT_THE_END = 2**62

# Settings that change speed and logs, but not the result.
_MAY_CHANGE = (
  'checkpoint_every',
  'checkpoint_every_epochs',
  'keep_checkpoints',
  'loggers',
  'mesh',
  'num_threads',
  'num_workers',
  'prefetch',
  'pretrained_dir',
  'profile_steps',
  'progress_every',
  'report',
  'tfds_data_dir',
)


def without_sweep(
  config: ml_collections.ConfigDict,
) -> ml_collections.ConfigDict:
  """Returns a copy for one run, with the trainer that the run file had."""
  config = config.copy_and_resolve_references().unlock()
  if 'sweep' in config:
    config.trainer = config.sweep.trainer
    del config['sweep']
  return config.lock()


def only_last_evaluated(
  config: ml_collections.ConfigDict,
) -> ml_collections.ConfigDict:
  """Returns a copy that evaluates at the last step alone."""
  config = config.copy_and_resolve_references().unlock()
  config.eval_every, config.eval_every_epochs = _AT_THE_END, None
  return config.lock()


def check_same(
  config: ml_collections.ConfigDict, workdir: workdir_lib.Workdir
) -> None:
  """Raises `errors.UserError` if a workdir's run has other settings, data, teacher."""
  saved = files.read_json(workdir.config)
  if not saved:
    return
  run = resolve.resolve(config, begun=workdir)
  before, now = (
    {k: v for k, v in settings.items() if k not in _MAY_CHANGE}
    for settings in (saved, start.plain(run.config))
  )
  if changed := start.changed(before, now):
    raise errors.UserError(
      f'{workdir} has a run of other settings: {", ".join(changed.values())}. Choose'
      f' another workdir, or delete that folder to run it again.'
    )
  same_data.check(workdir, run.splits, resumed=True)
  teachers.check_begun(workdir, run.config)


def run(
  config: ml_collections.ConfigDict,
  workdir: workdir_lib.Workdir,
  train: Trainer | None = None,
) -> dict[str, Any]:
  """Returns the metrics of a run; starts or resumes it if it has not ended.

  `train` runs a config in a workdir; by default `train.train_and_evaluate`.
  """
  train = train or train_lib.train_and_evaluate
  if not artifact.is_artifact(workdir.artifact):
    with hosts.agreeing(str(workdir)):
      workdir.folder.mkdir(parents=True, exist_ok=True)
      train(config, str(workdir))
  return artifact.info(workdir.artifact)['metrics']
