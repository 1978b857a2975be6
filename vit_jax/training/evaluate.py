"""Evaluates the newest checkpoint of a run."""

import dataclasses

from absl import logging
import jax
import ml_collections

from vit_jax.configs import validate
from vit_jax.evaluation import evaluator
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import workdir as workdir_lib
from vit_jax.training import out_of_memory
from vit_jax.training import resolve
from vit_jax.training import same_data
from vit_jax.training import start
from vit_jax.training import state as state_lib
from vit_jax.training import tasks


def evaluate(
  config: ml_collections.ConfigDict, workdir: str
) -> dict[str, int | float]:
  """Evaluates the newest checkpoint of a workdir on `config.pp.test`.

  Returns:
    The metrics, also written to `workdir/evaluation.json`.

  Raises:
    errors.UserError: if there is no checkpoint, if it does not fit the config or
      the data, or if memory runs out.
  """
  config = validate.validate(config)
  folder = workdir_lib.at(workdir)
  if not folder.checkpoints.is_dir():
    raise errors.UserError(
      f'{workdir} has no checkpoints. Train first, with the same workdir.'
    )
  saver = state_lib.Saver(folder, read_only=True)
  if saver.latest_step is None:
    raise errors.UserError(
      f'{workdir} has no whole checkpoint yet. Train first or longer.'
    )
  run = resolve.resolve(config, begun=folder)
  same_data.check_outputs(folder, run.splits)
  _warn_of_changes(folder, run.config)
  with out_of_memory.advice(run.config):
    task = tasks.make(run)
    like = dataclasses.replace(task.stages[0].like, opt_state=())
    state = saver.restore_for_evaluation(like)
    saver.close()
    metrics = evaluator.with_average(task.eval_fn, state.params, state.ema)
  metrics = {'step': int(state.step), **metrics}
  if jax.process_index() == 0:
    with errors.writing(folder.evaluation):
      files.write_json(metrics, folder.evaluation)
  return metrics


def _warn_of_changes(
  folder: workdir_lib.Workdir, config: ml_collections.ConfigDict
) -> None:
  """Warns of settings of the model or its images that differ from those of the run."""
  saved = files.read_json(folder.config)
  changed = start.changed(saved, start.plain(config)) if saved else {}
  clauses = [
    clause
    for name, clause in changed.items()
    if name.startswith(('model.', 'lora_')) or name in resolve.DECIDED
  ]
  if clauses:
    logging.warning(
      'The run was trained with other settings: %s.', ', '.join(clauses)
    )
