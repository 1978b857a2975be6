"""Metrics of parameters on a test split; every example counts once."""

from collections.abc import Callable, Sequence
import functools
from typing import Any

from absl import logging
import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array

from vit_jax.data import batching
from vit_jax.evaluation import all_outputs
from vit_jax.evaluation import probes
from vit_jax.evaluation import scores
from vit_jax.models import inference
from vit_jax.models import losses
from vit_jax.runtime import errors
from vit_jax.runtime import sharding

EvalFn = Callable[[Any], dict[str, int | float]]


def make_eval_fn(
  model: nn.Module,
  data: batching.Data,
  mesh: jax.sharding.Mesh,
  *,
  loss: losses.Loss,
  batch_size: int,
  probe_names: Sequence[str] = (),
) -> EvalFn:
  """Returns a function from parameters to metrics of test images with one class each.

  `batch_size` counts all devices, and `probe_names`, see `probes.fit`, are fitted to
  `data.train`.
  """

  def sums_of(
    params: Any, batch: dict[str, Array]
  ) -> tuple[dict[str, Array], list[Array]]:
    images = data.preprocess.eval(batch['image'])
    logits = inference.apply(model, params, images)
    labels, mask = batch['label'], batch['mask']
    _, best = jax.lax.top_k(logits, min(5, logits.shape[-1]))
    values = {
      scores.LOSS: loss(logits, labels),
      **scores.hits(best, labels),
      scores.EXAMPLES: jnp.ones_like(labels),
    }
    sums = {k: jnp.sum(v, where=mask) for k, v in values.items()}
    return sums, _by_class(best[:, 0], labels, mask, logits.shape[-1])

  # Replicated, so that every host has all counts.
  step_fn = jax.jit(
    sharding.in_mesh(mesh, sums_of), out_shardings=sharding.replicated(mesh)
  )
  probe_fn = probes.make(model, data, mesh, batch_size, probe_names)

  def eval_fn(params: Any) -> dict[str, int | float]:
    params = inference.cast_weights(params, model.dtype)
    batches = batching.eval_batches(data, mesh, batch_size)
    sums = (step_fn(params, batch) for batch in batches)
    # Summed on the device: fetching would stop the next step from starting.
    totals, by_class = jax.device_get(
      functools.reduce(functools.partial(jax.tree.map, jnp.add), sums)
    )
    totals = {k: float(v) for k, v in totals.items()}
    count = int(totals.pop(scores.EXAMPLES))
    number = examples_and_skipped(data, count)  # Raises at 0.
    examples, correct, predicted, distance = by_class
    of_classes = scores.ByClass(examples, correct, predicted, float(distance))
    return {
      **{k: v / count for k, v in totals.items()},
      **of_classes.scores(),
      **number,
      **probe_fn(params),
    }

  return eval_fn


def make_eval_fn_of_all(
  model: nn.Module,
  data: batching.Data,
  read: all_outputs.Reader,
  *,
  loss: losses.Loss,
  summary: Callable[[Any, Any, Any], dict[str, float]],
) -> EvalFn:
  """Returns a function from parameters to metrics that need all logits at once.

  Args:
    model: the module.
    data: the splits.
    read: returns the logits and the labels of a source.
    loss: maps logits and labels to the loss of each image.
    summary: maps parameters, logits and labels to metrics.
  """

  def eval_fn(params: Any) -> dict[str, int | float]:
    params = inference.cast_weights(params, model.dtype)
    logits, labels = read(params, data.test.source)
    return {
      scores.LOSS: float(loss(jnp.asarray(logits), jnp.asarray(labels)).mean()),
      **summary(params, logits, labels),
      **examples_and_skipped(data, len(labels)),
    }

  return eval_fn


def _by_class(
  best: Array, labels: Array, mask: Array, classes: int
) -> list[Array]:
  """Returns the counts of `scores.ByClass` of a batch."""
  count = functools.partial(jnp.bincount, length=classes)
  correct = mask & (best == labels)
  distance = jnp.square(best - labels).astype(float)
  return [
    count(labels, mask.astype(float)),
    count(labels, correct.astype(float)),
    count(best, mask.astype(float)),
    jnp.sum(distance, where=mask),
  ]


def with_average(
  eval_fn: EvalFn, params: Any, average: Any
) -> dict[str, int | float]:
  """Returns metrics of `params` and, as `NAME_ema`, of their average, if any."""
  metrics = eval_fn(params)
  if not average:
    return metrics
  averaged = eval_fn(average).items()
  return metrics | {f'{name}{scores.AVERAGED}': x for name, x in averaged}


def examples_and_skipped(data: batching.Data, count: int) -> dict[str, int]:
  """Returns how many test images were evaluated, `count`, and how many were not.

  Raises:
    errors.UserError: if `count` is 0.
  """
  if not count:
    raise errors.UserError('None of the test images can be decoded.')
  skipped = len(data.test) - count
  if skipped:
    logging.warning('%d test images were skipped.', skipped)
  return {scores.EXAMPLES: count, scores.SKIPPED: skipped}
