"""Measures images per second of a model's forward pass, on all devices."""

from collections.abc import Callable
import functools
import time
from typing import Any

from absl import logging
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from vit_jax import checkpoint
from vit_jax import models
from vit_jax.configs import common
from vit_jax.configs import models as model_configs
from vit_jax.configs import rules
from vit_jax.configs import spec
from vit_jax.models import inference
from vit_jax.runtime import errors
from vit_jax.runtime import sharding
from vit_jax.runtime import storage
from vit_jax.training import metrics
from vit_jax.weights import released


def inference_time(
  config: ml_collections.ConfigDict, workdir: str
) -> dict[str, float]:
  """Measures a number of steps; see `configs/inference_time.py`.

  Returns:
    Images per second and device: `imgs_sec_core_` `min`, `max`, `mean`, `std`,
    over `config.steps` steps. They are logged and written to
    `workdir/config.log_dir`.

  Raises:
    errors.UserError: if a setting is wrong.
  """
  check(config)
  mesh = sharding.make_mesh()
  sharding.data_shard(mesh, config.batch)
  model = models.get_model(
    config.model_name, num_classes=config.num_classes, dtype=config.dtype
  )
  shape = (config.image_size, config.image_size, 3)
  shapes = models.abstract_params(model, shape)
  rng = np.random.default_rng(0)
  # Real initialisers take longer than the measurement.
  params = jax.tree.map(
    lambda x: rng.normal(0, 0.02, x.shape).astype(np.float32), shapes
  )
  if config.pretrained_dir is not None:
    model_config = model_configs.get_model_config(config.model_name)
    path = released.find(model_config.model_name, config.pretrained_dir)
    params = checkpoint.load_pretrained(
      pretrained_path=path, init_params=params, model_config=model_config
    )
  params = jax.device_put(params, sharding.replicated(mesh))
  make_images = jax.jit(
    lambda: jnp.ones((config.batch, *shape)),
    out_shardings=sharding.batch_sharding(mesh),
  )
  images = make_images()
  params = inference.cast_weights(params, config.dtype)
  forward = jax.jit(functools.partial(inference.apply, model))
  step = lambda: forward(params, images)
  jax.block_until_ready(step())  # Compiles.
  times = measure(step, config.initial_steps, config.steps)
  speeds = config.batch / jax.device_count() / np.array(times)
  result = {
    f'imgs_sec_core_{name}': float(getattr(np, name)(speeds))
    for name in ('min', 'max', 'mean', 'std')
  }
  logging.info('%d steps of %s: %s', len(times), config.model_name, result)
  if jax.process_index() == 0:
    folder = storage.as_path(workdir) / config.log_dir
    folder.mkdir(parents=True, exist_ok=True)
    writer = metrics.Writer(folder, 0)
    writer.write(0, result)
    writer.close()
  return result


def measure(
  step: Callable[[], Any], initial_steps: int, steps: int
) -> list[float]:
  """Returns the seconds of each of `steps` that follow `initial_steps`."""
  times = []
  for _ in range(initial_steps + steps):
    start = time.perf_counter()
    jax.block_until_ready(step())
    times.append(time.perf_counter() - start)
  return times[initial_steps:]


def check(config: ml_collections.ConfigDict) -> None:
  """Raises `errors.UserError` at a setting that cannot work."""
  if 'model_name' not in config:
    raise errors.UserError(
      "config.trainer is 'inference_time', which has its own settings: give"
      ' --config=configs/inference_time.py.'
    )
  common.RULES['dtype'].check(config.dtype, 'config.dtype')
  rules.number(0, low=0).check(config.initial_steps, 'config.initial_steps')
  for name in ('batch', 'num_classes', 'image_size', 'steps'):
    if config[name] < 1:
      raise errors.UserError(
        f'config.{name} is {config[name]}: give config.{name}=N, at least 1.'
      )
  try:
    model = model_configs.get_model_config(config.model_name)
  except ValueError as e:
    raise errors.UserError(f'config.model_name: {e}') from e
  if spec.has_texts(model):
    raise errors.UserError(
      f'config.model_name is {config.model_name}, which has no classes.'
    )
  if 0 in spec.of(model).grid((config.image_size, config.image_size)):
    raise errors.UserError(
      f'config.image_size is {config.image_size}: too small for a patch of'
      f' {config.model_name}.'
    )
