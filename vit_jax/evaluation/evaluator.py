"""Top-1, top-5 and loss, every example counted once."""

from collections.abc import Callable
import functools
import json
from typing import Any

from absl import logging
import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array
import ml_collections
import optax

from vit_jax import models
from vit_jax.configs import resolved
from vit_jax.configs import validate
from vit_jax.data import dataset
from vit_jax.evaluation import probes
from vit_jax.models import inference
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import sharding
from vit_jax.runtime import storage
from vit_jax.training import losses
from vit_jax.training import resolve
from vit_jax.training import state as state_lib
from vit_jax.training import tasks

Batch = dict[str, Array]
EvalStep = Callable[[Any, Batch], dict[str, Array]]
EvalFn = Callable[[Any], dict[str, int | float]]
Prepare = Callable[..., tuple[state_lib.TrainState, EvalFn]]


def eval_step(
  params: Any,
  batch: Batch,
  *,
  model: nn.Module,
  preprocess: Callable[[Array], Array],
  loss: str,
) -> dict[str, Array]:
  """Returns sums over the examples of a batch whose mask is true."""
  images = preprocess(batch['image'])
  logits = inference.apply(model, params, images)
  labels, mask = batch['label'], batch['mask']
  values = {
    'loss_test': losses.LOSSES[loss](logits, labels),
    'accuracy_test': losses.is_in_top_k(logits, labels, 1),
    'top5_test': losses.is_in_top_k(logits, labels, 5),
    'examples_test': jnp.ones_like(labels),
  }
  return {k: jnp.sum(v, where=mask) for k, v in values.items()}


def make_eval_step(
  config: ml_collections.ConfigDict,
  model: nn.Module,
  data: tasks.Data,
  mesh: jax.sharding.Mesh,
) -> EvalStep:
  """Returns `eval_step` of a config, jitted."""
  step = functools.partial(
    eval_step,
    model=model,
    preprocess=data.preprocess.eval,
    loss=config.loss,
  )
  return jax.jit(sharding.in_mesh(mesh, step))


def classification(
  config: ml_collections.ConfigDict,
  mesh: jax.sharding.Mesh,
  splits: dataset.Splits,
) -> tuple[state_lib.TrainState, EvalFn]:
  """Returns the shapes of a state and what evaluates its parameters."""
  data = tasks.data(config, splits)
  model = tasks.model(config, len(data.class_names))
  like = tasks.abstract_state(
    models.abstract_params(model, data.image_shape),
    optax.identity(),
    mesh,
    has_ema=config.ema_decay > 0,
  )
  return like, make_eval_fn(config, model, data, mesh)


def make_eval_fn(
  config: ml_collections.ConfigDict,
  model: nn.Module,
  data: tasks.Data,
  mesh: jax.sharding.Mesh,
) -> EvalFn:
  """Returns `run` and the probes of a config: parameters to metrics."""
  step_fn = make_eval_step(config, model, data, mesh)
  probe = probes.make(config, data, mesh)

  def eval_fn(params: Any) -> dict[str, int | float]:
    params = inference.cast_weights(params, config.dtype)
    metrics = run(step_fn, params, data, mesh, config.batch_eval)
    return metrics | probe(params)

  return eval_fn


def of_state(
  eval_fn: EvalFn, state: state_lib.TrainState
) -> dict[str, int | float]:
  """Returns the metrics of the parameters and, as `_ema`, of their average."""
  metrics = eval_fn(state.params)
  if not state.ema:
    return metrics
  averaged = eval_fn(state.ema)
  return metrics | {f'{name}_ema': value for name, value in averaged.items()}


def run(
  step_fn: EvalStep,
  params: Any,
  data: tasks.Data,
  mesh: jax.sharding.Mesh,
  batch_size: int,
) -> dict[str, int | float]:
  """Returns the means over all test images, and how many there were.

  Args:
    step_fn: of `make_eval_step`.
    params: of the model.
    data: whose test split is read.
    mesh: where the batches go.
    batch_size: over all devices.
  """
  totals = None
  for batch in tasks.eval_batches(data, mesh, batch_size):
    sums = step_fn(params, batch)
    # Summed on the device: fetching would stop the next step from starting.
    totals = jax.tree.map(jnp.add, totals, sums) if totals else sums
  totals = {k: float(v) for k, v in jax.device_get(totals).items()}
  count = int(totals.pop('examples_test'))
  counts = examples_and_skipped(data, count)
  return {**{k: v / count for k, v in totals.items()}, **counts}


def examples_and_skipped(data: tasks.Data, count: int) -> dict[str, int]:
  """Returns how many test images were read and how many were not.

  Raises:
    errors.UserError: if `count`, the former, is 0.
  """
  if not count:
    raise errors.UserError('None of the test images can be decoded.')
  skipped = len(data.test) - count
  if skipped:
    logging.warning('%d test images were skipped.', skipped)
  return {'examples_test': count, 'skipped_test': skipped}


def evaluate(
  config: ml_collections.ConfigDict,
  workdir: str,
  prepare: Prepare = classification,
) -> dict[str, int | float]:
  """Evaluates the newest checkpoint of a workdir on `config.pp.test`.

  Args:
    config: see `configs.common`.
    workdir: of the run.
    prepare: (config, mesh, splits) to the shapes of a state and its
      evaluation.

  Returns:
    The metrics, also printed and written to `workdir/evaluation.json`.

  Raises:
    errors.UserError: if there is no checkpoint, or it does not fit the config.
  """
  config = resolved.complete(config)
  validate.validate(config)
  folder = storage.as_path(workdir)
  if not (folder / 'checkpoints').is_dir():
    raise errors.UserError(
      f'{workdir} has no checkpoints. Train first, with the same --workdir.'
    )
  saver = state_lib.Saver(workdir, read_only=True)
  if saver.latest_step is None:
    raise errors.UserError(
      f'{workdir} has no whole checkpoint yet. Train first or longer.'
    )
  mesh = sharding.make_mesh(**config.mesh)
  filled = resolve.fill(config, workdir, mesh, resumed=True)
  like, eval_fn = prepare(filled.config, mesh, filled.splits)
  state = saver.restore_for_evaluation(like.replace(opt_state=()))
  saver.close()
  metrics = {'step': int(state.step), **of_state(eval_fn, state)}
  if jax.process_index() == 0:
    text = json.dumps(metrics, indent=2)
    print(text)
    try:
      files.write_text(text + '\n', folder / 'evaluation.json')
    except OSError as e:
      raise errors.UserError(
        f'{folder}/evaluation.json cannot be written: {e.strerror}.'
      ) from e
  return metrics
