"""The artifacts of a run that has ended."""

import json

from absl import logging
import jax

from vit_jax.configs import arguments
from vit_jax.models import blocks
from vit_jax.runtime import workdir as workdir_lib
from vit_jax.training import loop
from vit_jax.training import resolve
from vit_jax.training import state as state_lib
from vit_jax.training import task as task_lib
from vit_jax.weights import artifact
from vit_jax.weights import record as weights_lib


def write_artifacts(
  run: resolve.Run,
  task: task_lib.Task,
  state: state_lib.TrainState,
  metrics: loop.Metrics | None,
  workdir: workdir_lib.Workdir,
) -> None:
  """Writes the artifact, and one of the averaged parameters, on process 0.

  Args:
    run: what was done.
    task: its task.
    state: the last state.
    metrics: the last test metrics, None without evaluations.
    workdir: the workdir of the run.
  """
  if skipped := len(task.data.train.skipped):
    logging.warning('%d training images were skipped.', skipped)
  info = {
    'dataset': run.config.dataset,
    'step': int(state.step),
    'metrics': metrics,
  }
  trees = {workdir.artifact: state.params, workdir.artifact_ema: state.ema}
  for path, tree in trees.items():
    if not tree:
      continue
    params = blocks.unstack(artifact.to_numpy(tree))
    if jax.process_index():
      continue
    weights = weights_lib.Weights(
      params=params,
      model=arguments.of_saved_model(run.config),
      class_names=task.data.class_names,
      preprocessing=task.data.preprocessing,
      loss=run.config.loss,
      info=json.loads(json.dumps(info)),
      vocabulary=task.vocabulary,
    )
    artifact.save(path, weights)
    logging.info('The model is in %s: %s', path, metrics or 'not evaluated')
