"""Evaluates the newest checkpoint of a run."""

import jax
import ml_collections

from vit_jax.configs import resolved
from vit_jax.configs import validate
from vit_jax.evaluation import evaluator
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import sharding
from vit_jax.runtime import workdir as workdir_lib
from vit_jax.training import resolve
from vit_jax.training import state as state_lib
from vit_jax.training import tasks


def evaluate(
  config: ml_collections.ConfigDict, workdir: str
) -> dict[str, int | float]:
  """Evaluates the newest checkpoint of a workdir on `config.pp.test`.

  Args:
    config: see `configs.common`.
    workdir: the workdir of the run.

  Returns:
    The metrics, also written to `workdir/evaluation.json`.

  Raises:
    errors.UserError: if there is no checkpoint, or it does not fit the config.
  """
  config = resolved.complete(config)
  validate.validate(config)
  run = workdir_lib.at(workdir)
  if not run.checkpoints.is_dir():
    raise errors.UserError(
      f'{workdir} has no checkpoints. Train first, with the same workdir.'
    )
  saver = state_lib.Saver(run, read_only=True)
  if saver.latest_step is None:
    raise errors.UserError(
      f'{workdir} has no whole checkpoint yet. Train first or longer.'
    )
  mesh = sharding.make_mesh(**config.mesh)
  filled = resolve.fill(config, run, mesh, resumed=True)
  task = tasks.make(filled.config, mesh, splits=filled.splits)
  like = task.stages[0].like.replace(opt_state=())
  state = saver.restore_for_evaluation(like)
  saver.close()
  metrics = evaluator.with_average(task.eval_fn, state.params, state.ema)
  metrics = {'step': int(state.step), **metrics}
  if jax.process_index() == 0:
    try:
      files.write_json(metrics, run.evaluation)
    except OSError as e:
      raise errors.UserError(
        f'{run.evaluation} cannot be written: {e.strerror}.'
      ) from e
  return metrics
