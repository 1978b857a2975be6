"""Locked-image tuning (arXiv:2111.07991): a text tower learns to fit images.

The image tower keeps its pretrained weights bit for bit: it has no gradient, no
optimizer state and no dropout. Its head, if it has one, is trained.
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array
import numpy as np

from vit_jax import models
from vit_jax.configs import arguments
from vit_jax.configs import spec
from vit_jax.data import batching
from vit_jax.data import captions
from vit_jax.data import text
from vit_jax.evaluation import evaluator
from vit_jax.evaluation import retrieval
from vit_jax.models import losses
from vit_jax.runtime import sharding
from vit_jax.training import resolve
from vit_jax.training import stages as stages_lib
from vit_jax.training import state as state_lib
from vit_jax.training import task as task_lib
from vit_jax.training import update
from vit_jax.weights import initial
from vit_jax.weights import released

# The image tower without its head, if it has one.
_LOCKED = (r'img/(?!head/)',)


def make_task(
  run: resolve.Run, data: batching.Data | None = None
) -> task_lib.Task:
  """Returns the task of matching images and texts.

  Args:
    run: what to do.
    data: None makes it of the splits of the run, and finds the vocabulary.

  Raises:
    errors.UserError: if the captions or the vocabulary do not fit the model.
  """
  config, mesh = run.config, run.mesh
  model = models.from_config(arguments.of_model(config))
  vocabulary = None
  if data is None:
    with sharding.first_process_first():
      vocabulary = released.find_vocabulary(
        config.model, config.vocabulary, config.pretrained_dir
      )
    data = _data(run, model, vocabulary)
  loss_fn = make_loss_fn(
    model, data.preprocess.train, config.loss, config.label_smoothing
  )
  embed = functools.partial(
    embed_step, model=model, preprocess=data.preprocess.eval
  )
  stages = stages_lib.make(
    run,
    model,
    loss_fn,
    data.image_shape,
    train_step=train_step,
    locked=_LOCKED,
  )
  shapes = stages[0].like.params
  return task_lib.Task(
    data=data,
    model=model,
    stages=stages,
    initial_params=lambda weights: _pretrained_params(
      config, model, shapes, data.image_shape, weights
    ),
    eval_fn=functools.partial(
      run_evaluation,
      # Replicated, so that every host has all embeddings.
      jax.jit(
        sharding.in_mesh(mesh, embed),
        out_shardings=sharding.replicated(mesh),
      ),
      data=data,
      mesh=mesh,
      batch_size=config.batch_eval,
      loss=config.loss,
    ),
    vocabulary=vocabulary,
  )


def _data(run: resolve.Run, model: nn.Module, vocabulary: str) -> batching.Data:
  tokenizer = text.get_tokenizer(
    model.pp['tokenizer_name'], vocabulary, model.pp['max_len']
  )
  text.check_vocabulary(tokenizer, model.vocab_size, vocabulary)

  data = batching.of_config(run.config, run.splits)
  return dataclasses.replace(
    data,
    train_transform=captions.TrainPair(data.train_transform, tokenizer),
    eval_transform=captions.EvalPair(data.preprocessing.size, tokenizer),
  )


def _pretrained_params(
  config, model, shapes, image_shape, weights
) -> dict[str, Any]:
  return initial.lit_params(
    model,
    weights,
    shapes,
    grid=spec.of(config.model).grid(image_shape[:2]),
    seed=config.seed,
  )


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
  state: state_lib.TrainState, batch: update.Batch, key: Array, **how: Any
) -> tuple[state_lib.TrainState, dict[str, Array]]:
  """`update.train_step` with the temperature among the metrics."""
  state, metrics = update.train_step(state, batch, key, **how)
  return state, {**metrics, 'temperature': jnp.exp(state.params['t'][0])}


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
