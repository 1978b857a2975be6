"""Training: what the loop needs, and what it leaves."""

import contextlib
import functools
import json
from typing import Any

from absl import logging
import jax
from jaxtyping import Array
import ml_collections

from vit_jax import official
from vit_jax.configs import arguments
from vit_jax.configs import resolved
from vit_jax.configs import validate
from vit_jax.data import batching
from vit_jax.evaluation import evaluator
from vit_jax.models import blocks
from vit_jax.models import flops
from vit_jax.runtime import sharding
from vit_jax.runtime import workdir as workdir_lib
from vit_jax.training import loop
from vit_jax.training import metrics as metrics_lib
from vit_jax.training import profiler
from vit_jax.training import resolve
from vit_jax.training import resume
from vit_jax.training import stages as stages_lib
from vit_jax.training import start
from vit_jax.training import state as state_lib
from vit_jax.training import task as task_lib
from vit_jax.training import tasks
from vit_jax.weights import artifact
from vit_jax.weights import record as weights_lib

Batch = dict[str, Array]


def __getattr__(name: str) -> Any:
  """Names what replaces a function of the official module."""
  raise official.missing(__name__, name)


def train_and_evaluate(
  config: ml_collections.ConfigDict, workdir: str
) -> state_lib.TrainState:
  """Trains, evaluates, saves; goes on from the newest checkpoint if there is.

  Args:
    config: see `configs.common`.
    workdir: folder for checkpoints, metrics and, at the end, `artifact/`.

  Returns:
    The last state.

  Raises:
    errors.UserError: if a setting or a file is wrong, or the loss not finite.
    KeyboardInterrupt: after Ctrl-C, the state being saved.
    SystemExit: 0, after SIGTERM, likewise.
  """
  config = resolved.complete(config)
  validate.validate(config)
  run = workdir_lib.at(workdir)
  with workdir_lib.guarded(run):
    return _train(config, run)


def _train(
  config: ml_collections.ConfigDict, workdir: workdir_lib.Workdir
) -> state_lib.TrainState:
  start.check(config, workdir)
  mesh = sharding.make_mesh(**config.mesh)
  start.check_batches(config, mesh)
  saver = state_lib.Saver(workdir, keep=config.keep_checkpoints)
  config, task, state = _begin(config, workdir, mesh, saver)
  first_step = int(state.step)
  start.describe(config, task, workdir, first_step)
  writer = metrics_lib.Writer(
    workdir, first_step + 1, loggers=config.loggers, config=start.plain(config)
  )
  parts = loop.Parts(
    stages=task.stages,
    jit_step=functools.partial(stages_lib.jit_step, mesh=mesh),
    eval_fn=task.eval_fn,
    batches=batching.train_batches(
      task.data,
      mesh,
      config.batch,
      seed=config.seed,
      first_step=first_step,
      total_steps=config.total_steps,
    ),
    saver=saver,
    writer=writer,
    progress=_progress(config, task, first_step),
    profile=profiler.Profile(config.profile_steps, workdir.profile),
  )
  with contextlib.closing(writer), contextlib.closing(parts.batches):
    state, test_metrics = loop.run(config, state, parts)
    if test_metrics is None and config.eval_every:  # The run had ended before.
      test_metrics = evaluator.with_average(
        task.eval_fn, state.params, state.ema
      )
    _finish(config, state, task, test_metrics, workdir)
  return state


def _begin(
  config: ml_collections.ConfigDict,
  workdir: workdir_lib.Workdir,
  mesh: jax.sharding.Mesh,
  saver: state_lib.Saver,
) -> tuple[ml_collections.ConfigDict, task_lib.Task, state_lib.TrainState]:
  """Returns the config with nothing left open, the task, and the first state.

  The state is that of the newest checkpoint, if the workdir has one.
  """
  resumed = saver.latest_step is not None
  filled = resolve.fill(config, workdir, mesh, resumed=resumed)
  config = filled.config
  splits = {
    'config.pp.train': filled.splits.train.source,
    'config.pp.test': filled.splits.test.source,
  }
  fingerprints = resume.check_data(workdir, splits, resumed=resumed)
  start.check_steps(config, saver.latest_step, workdir)
  task = tasks.make(config, mesh, splits=filled.splits)
  if not resumed:
    state = task.stages[0].new_state(task.initial_params(filled.weights))
  else:
    stage = stages_lib.at(task.stages, saver.latest_step)
    with resume.naming_changes(workdir, start.plain(config)):
      state = saver.restore(stage.like)
  resume.remember_data(workdir, fingerprints)
  return config, task, state


def _progress(config, task, first_step) -> metrics_lib.Progress:
  return metrics_lib.Progress(
    first_step,
    config.total_steps,
    config.batch,
    flops.train_flops(task.model, task.data.image_shape),
    flops.peak_flops(jax.devices()[0]),
  )


def _finish(config, state, task, test_metrics, workdir) -> None:
  """Leaves artifact and report; also the artifact of averaged parameters."""
  data = task.data
  if data.train.skipped:
    logging.warning('%d training images were skipped.', len(data.train.skipped))
  info = {
    'dataset': config.dataset,
    'step': int(state.step),
    'metrics': test_metrics,
  }
  trees = {workdir.artifact: state.params, workdir.artifact_ema: state.ema}
  for path, params in trees.items():
    if not params:
      continue
    params = blocks.unstack(artifact.to_numpy(params))
    if jax.process_index():
      continue
    weights = _weights(config, task, params, info)
    artifact.save(path, weights)
    logging.info(
      'The model is in %s: %s', path, test_metrics or 'not evaluated'
    )


def _weights(config, task, params, info) -> weights_lib.Weights:
  return weights_lib.Weights(
    params=params,
    model=arguments.of_saved_model(config),
    class_names=task.data.class_names,
    preprocessing=task.data.preprocessing,
    loss=config.loss,
    info=json.loads(json.dumps(info)),
    vocabulary=task.vocabulary,
  )
