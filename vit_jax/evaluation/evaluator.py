"""Top-1, top-5 and loss, every example counted once."""

from collections.abc import Callable
import functools
from typing import Any

from absl import logging
import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array
import ml_collections

from vit_jax.data import batching
from vit_jax.evaluation import probes
from vit_jax.models import inference
from vit_jax.models import losses
from vit_jax.runtime import errors
from vit_jax.runtime import sharding

Batch = dict[str, Array]
EvalStep = Callable[[Any, Batch], dict[str, Array]]
EvalFn = Callable[[Any], dict[str, int | float]]


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
  data: batching.Data,
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


def make_eval_fn(
  config: ml_collections.ConfigDict,
  model: nn.Module,
  data: batching.Data,
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


def with_average(
  eval_fn: EvalFn, params: Any, average: Any
) -> dict[str, int | float]:
  """Returns the metrics of parameters and, as `_ema`, of their moving average.

  Args:
    eval_fn: parameters to metrics.
    params: parameters.
    average: their moving average; empty where there is none.
  """
  metrics = eval_fn(params)
  if not average:
    return metrics
  averaged = eval_fn(average)
  return metrics | {f'{name}_ema': value for name, value in averaged.items()}


def run(
  step_fn: EvalStep,
  params: Any,
  data: batching.Data,
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
  for batch in batching.eval_batches(data, mesh, batch_size):
    sums = step_fn(params, batch)
    # Summed on the device: fetching would stop the next step from starting.
    totals = jax.tree.map(jnp.add, totals, sums) if totals else sums
  totals = {k: float(v) for k, v in jax.device_get(totals).items()}
  count = int(totals.pop('examples_test'))
  counts = examples_and_skipped(data, count)
  return {**{k: v / count for k, v in totals.items()}, **counts}


def examples_and_skipped(data: batching.Data, count: int) -> dict[str, int]:
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
