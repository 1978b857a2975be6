"""Images and texts learn to fit each other (arXiv:2111.07991, arXiv:2303.15343).

A locked image tower keeps its pretrained weights bit for bit: it has no gradient,
no optimizer state and no dropout. Its head, if it has one, is trained.
"""

from collections.abc import Callable
import functools
import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array
import numpy as np

from vit_jax import models
from vit_jax.data import batching
from vit_jax.evaluation import evaluator
from vit_jax.evaluation import retrieval
from vit_jax.models import losses
from vit_jax.training import state as state_lib
from vit_jax.training import update

TEMPERATURE = 'temperature'  # Of the similarities, in the metrics.

# The image tower without its head, if it has one.
LOCKED = (r'img/(?!head/)',)


def make_loss_fn(
  model: nn.Module,
  preprocess: Callable[[Array, Array], Array],
  loss: str = 'softmax',
  label_smoothing: float = 0.0,
) -> update.LossFn:
  """Returns `loss_fn(params, batch, key)`, the mean loss of a batch of pairs.

  Compares each text with each image of the whole batch, over all devices.
  Arguments are those of `update.make_loss_fn`.
  """

  def loss_fn(params, batch, key):
    augment_key, dropout_key = jax.random.split(key)
    zimg, ztxt, out = model.apply(
      {'params': params},
      images=preprocess(augment_key, batch['image']),
      tokens=batch['tokens'],
      train=True,
      rngs={'dropout': dropout_key},
    )
    logits = models.similarities(zimg, ztxt, out)
    return jnp.mean(losses.contrastive(logits, loss, label_smoothing))

  return loss_fn


def train_step(
  state: state_lib.TrainState,
  batch: update.Batch,
  key: Array,
  *,
  temperature_max: float | None = None,
  **how: Any,
) -> tuple[state_lib.TrainState, dict[str, Array]]:
  """`update.train_step` with the temperature among the metrics.

  `temperature_max` is that of the model.
  """
  if temperature_max is not None:
    how['limit'] = functools.partial(_limit, log_max=math.log(temperature_max))
  state, metrics = update.train_step(state, batch, key, **how)
  return state, {**metrics, TEMPERATURE: jnp.exp(state.params['t'][0])}


def _limit(params: dict[str, Any], log_max: float) -> dict[str, Any]:
  """Limits the log temperature `t` to `log_max`, unless it is frozen."""
  if 't' not in params:
    return params
  return {**params, 't': jnp.minimum(params['t'], log_max)}


def embed_step(
  params: Any,
  batch: update.Batch,
  *,
  model: nn.Module,
  preprocess: Callable[[Array], Array],
) -> tuple[dict[str, Array], dict[str, Array]]:
  """Returns embeddings, tokens and mask of a batch, and the model's scalars."""
  outputs: Any = model.apply(
    {'params': params},
    images=preprocess(batch['image']),
    tokens=batch['tokens'],
  )
  zimg, ztxt, out = outputs
  rows = {'zimg': zimg, 'ztxt': ztxt}
  return {**rows, 'tokens': batch['tokens'], 'mask': batch['mask']}, out


def run_evaluation(
  embed: Callable[..., tuple[dict[str, Array], dict[str, Array]]],
  params: Any,
  data: batching.Data,
  mesh: jax.sharding.Mesh,
  batch_size: int,
  loss: str,
) -> dict[str, int | float]:
  """Returns the metrics of `retrieval.retrieval` over all test images."""
  parts: list[dict[str, Array]] = []
  for batch in batching.eval_batches(data, mesh, batch_size):
    part, out = embed(params, batch)
    parts.append(part)
  rows = {
    name: np.concatenate([np.asarray(part[name]) for part in parts])
    for name in parts[0]
  }
  rows = {name: x[rows['mask']] for name, x in rows.items()}
  counts = evaluator.examples_and_skipped(data, len(rows['zimg']))
  out = jax.tree.map(np.asarray, out)
  metrics = retrieval.retrieval(
    rows['zimg'], rows['ztxt'], rows['tokens'], out, loss
  )
  return {**metrics, **counts}
