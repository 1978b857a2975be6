"""A training run, from its settings to its artifact."""

import contextlib
import json
from typing import Any

from absl import logging
import jax
from jaxtyping import Array
import ml_collections

from vit_jax.configs import arguments
from vit_jax.configs import spec
from vit_jax.configs import validate
from vit_jax.data import batching
from vit_jax.data import datasets
from vit_jax.evaluation import evaluator
from vit_jax.models import blocks
from vit_jax.models import flops
from vit_jax.models import lora
from vit_jax.runtime import files
from vit_jax.runtime import official
from vit_jax.runtime import sharding
from vit_jax.runtime import workdir as workdir_lib
from vit_jax.training import adapters
from vit_jax.training import loop
from vit_jax.training import metrics as metrics_lib
from vit_jax.training import out_of_memory
from vit_jax.training import profiler
from vit_jax.training import resolve
from vit_jax.training import same_data
from vit_jax.training import stages as stages_lib
from vit_jax.training import start
from vit_jax.training import state as state_lib
from vit_jax.training import tasks
from vit_jax.training import teachers
from vit_jax.weights import artifact
from vit_jax.weights import record as weights_lib
from vit_jax.weights import units

Batch = dict[str, Array]


def __getattr__(name: str) -> Any:
  """Raises an error that names the replacement of an official function."""
  raise official.missing(__name__, name)


def train_and_evaluate(
  config: ml_collections.ConfigDict, workdir: str
) -> state_lib.TrainState:
  """Trains, evaluates and saves; resumes from the newest checkpoint if any.

  Args:
    config: see `configs.common`.
    workdir: folder for checkpoints, metrics and, at the end, `artifact/`.

  Returns:
    The last state.

  Raises:
    errors.UserError: if a setting or a file is wrong, if the loss is not finite,
      or if memory runs out.
    KeyboardInterrupt: after Ctrl-C, once the state is saved.
    SystemExit: 0, after SIGTERM, once the state is saved.
  """
  config = validate.validate(config)
  folder = workdir_lib.at(workdir)
  with workdir_lib.guarded(folder):
    run, saver = _resolve(config, folder)
    with out_of_memory.advice(run.config):
      task, state = _begin(run, folder, saver)
      start.describe(run, task, folder, int(state.step))
      state, test_metrics = _loop(run, task, state, folder, saver)
      _write_artifacts(run, task, state, test_metrics, folder)
  return state


def _resolve(
  config: ml_collections.ConfigDict, workdir: workdir_lib.Workdir
) -> tuple[resolve.Run, state_lib.Saver]:
  """Returns the complete settings of the run and its checkpoints."""
  mesh = sharding.make_mesh(**config.mesh)
  start.check(config, workdir, mesh)
  config = datasets.with_data(config)
  saver = state_lib.Saver(workdir, config.keep_checkpoints, config.best_metric)
  begun = None if saver.latest_step is None else workdir
  return resolve.resolve(config, mesh, begun=begun), saver


def _begin(
  run: resolve.Run, workdir: workdir_lib.Workdir, saver: state_lib.Saver
) -> tuple[tasks.Task, state_lib.TrainState]:
  """Returns the task, and the state of the newest checkpoint or a new one."""
  saved = saver.latest_step
  data = same_data.check(workdir, run.splits, resumed=saved is not None)
  start.check_steps(run.config, saved, workdir)
  task = tasks.make(run)
  teachers.check(workdir, task.teacher, resumed=saved is not None)
  if saved is None:
    state = task.stages[0].new_state(task.initial_params(run.weights))
  else:
    with start.naming_changes(workdir, start.plain(run.config)):
      state = saver.restore(stages_lib.at(task.stages, saved).like)
  same_data.remember(workdir, data)
  return task, state


def _loop(
  run: resolve.Run,
  task: tasks.Task,
  state: state_lib.TrainState,
  workdir: workdir_lib.Workdir,
  saver: state_lib.Saver,
) -> tuple[state_lib.TrainState, loop.Metrics | None]:
  """Runs the remaining steps; returns the last state and test metrics."""
  config, data, first_step = run.config, task.data, int(state.step)
  batches = batching.train_batches(
    data,
    run.mesh,
    config.batch,
    seed=config.seed,
    first_step=first_step,
    total_steps=config.total_steps,
  )
  writer = metrics_lib.Writer(
    workdir, first_step + 1, loggers=config.loggers, config=start.plain(config)
  )
  image_flops = flops.train_flops(task.model, data.image_shape)
  if task.teacher:
    image_flops += task.teacher.flops()
  progress = metrics_lib.Progress(
    first_step,
    config.total_steps,
    config.batch,
    image_flops,
    flops.peak_flops(jax.devices()),
  )
  parts = loop.Parts(
    task=task,
    batches=batches,
    saver=saver,
    writer=writer,
    progress=progress,
    profile=profiler.Profile(config.profile_steps, workdir.profile),
  )
  with contextlib.closing(writer), contextlib.closing(batches):
    state, metrics = loop.run(config, state, parts)
    if metrics is None and config.eval_every:  # The run had ended before.
      metrics = evaluator.with_average(task.eval_fn, state.params, state.ema)
  return state, metrics


def _write_artifacts(
  run: resolve.Run,
  task: tasks.Task,
  state: state_lib.TrainState,
  metrics: loop.Metrics | None,
  workdir: workdir_lib.Workdir,
) -> None:
  """Writes one of the averaged parameters, then the artifact, on process 0.

  The artifact comes last: whoever waits for it finds the run complete.
  """
  if skipped := len(task.data.train.skipped):
    logging.warning('%d training images were skipped.', skipped)
  info = {
    **weights_lib.info_of_data(run.config),
    'step': int(state.step),
    'metrics': metrics,
  }
  if task.teacher:
    info['teacher'] = run.config.distill.teacher
  trees = {workdir.artifact_ema: state.ema, workdir.artifact: state.params}
  for path, tree in trees.items():
    if not tree:
      continue
    fitted = task.fit(tree)
    params = blocks.unstack(artifact.to_numpy(tree))
    if jax.process_index():
      continue
    matrices = lora.matrices(params)
    params = adapters.merger(run.config)(params)
    if task.scale:
      heads = spec.of(run.config.model).heads
      params = units.in_units(params, heads, task.scale.mean, task.scale.std)
    if path == workdir.artifact and fitted:
      files.write_json({'step': info['step'], **fitted}, workdir.fitted)
    weights = weights_lib.Weights(
      params=params,
      model=arguments.of_saved_model(run.config),
      class_names=task.data.class_names,
      preprocessing=task.data.preprocessing,
      loss=run.config.loss,
      task=run.config.task,
      units=task.data.units,
      info=json.loads(json.dumps(info)),
      vocabulary=task.vocabulary,
      **fitted,
    )
    artifact.save(path, weights, matrices)
    logging.info('The model is in %s: %s', path, metrics or 'not evaluated')
