"""Checks, logs and files before the first step of a new or resumed run."""

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import json
from typing import Any

from absl import logging
import flax.traverse_util
import jax
import ml_collections
import numpy as np
import optax

from vit_jax import models
from vit_jax.configs import common
from vit_jax.configs import spec
from vit_jax.data import sources
from vit_jax.models import flops
from vit_jax.runtime import environment
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import sharding
from vit_jax.runtime import storage
from vit_jax.runtime import workdir as workdir_lib
from vit_jax.training import resolve
from vit_jax.training import tasks
from vit_jax.weights import vocabularies


def check(
  config: ml_collections.ConfigDict,
  workdir: workdir_lib.Workdir,
  mesh: jax.sharding.Mesh,
) -> None:
  """Checks early for traces in a bucket, uneven batches and missing images.

  Raises:
    errors.UserError: with the setting and the reason.
  """
  if config.profile_steps and storage.is_address(workdir):
    raise errors.UserError(
      f'config.profile_steps is {config.profile_steps}: a trace needs a folder,'
      f' the workdir is {workdir}.'
    )
  if not spec.has_texts(config.model):
    sources.require_folder(config.dataset)  # Before weights are downloaded.
  for batch_size in (config.batch // config.accum_steps, config.batch_eval):
    sharding.data_shard(mesh, batch_size)


def check_steps(
  config: ml_collections.ConfigDict,
  saved: int | None,
  workdir: workdir_lib.Workdir,
) -> None:
  """Refuses runs that would end before their newest checkpoint or their trace.

  `saved` is the step of the newest checkpoint, None at the start.

  Raises:
    errors.UserError: with both numbers.
  """
  if saved is not None and saved > config.total_steps:
    epochs = ''
    if config.total_epochs is not None and not config.stages:
      epochs = f' (config.total_epochs={config.total_epochs:g})'
    raise errors.UserError(
      f'{workdir} has a checkpoint of step {saved}, but config.total_steps is'
      f' {config.total_steps}{epochs}: a run cannot go back. Set {saved}'
      f' steps or more, or another workdir.'
    )
  if config.profile_steps and config.profile_steps[0] > config.total_steps:
    raise errors.UserError(
      f'config.profile_steps is {config.profile_steps}, but config.total_steps is'
      f' {config.total_steps}: no step would be traced.'
    )


def _warn_of_low_peaks(
  stages: Sequence[ml_collections.ConfigDict],
  schedules: Sequence[optax.Schedule],
) -> None:
  """Warns about stages whose learning rate never reaches `base_lr`.

  It does not refuse them: people try out settings in a few steps with the warm-up
  of a long run.
  """
  pairs = zip(stages, schedules, strict=True)
  for number, (one, schedule) in enumerate(pairs, start=1):
    warmup, cooldown = one.warmup_steps, one.cooldown_steps
    if warmup < one.total_steps and warmup + cooldown <= one.total_steps:
      continue
    logging.warning(
      '%swarmup_steps %d and cooldown_steps %d do not fit into %d steps: the'
      ' learning rate reaches %.2g at most, not base_lr, %.2g.',
      f'Stage {number}: ' if len(stages) > 1 else '',
      warmup,
      cooldown,
      one.total_steps,
      np.max(jax.vmap(schedule)(np.arange(one.total_steps))),
      one.base_lr,
    )


def plain(config: ml_collections.ConfigDict) -> dict[str, Any]:
  """Returns settings as JSON types."""
  return json.loads(config.to_json_best_effort())


def changed(
  before: Mapping[str, Any], now: Mapping[str, Any]
) -> dict[str, str]:
  """Returns the settings that differ, each with a clause that has both values.

  A setting that did not exist `before` had its default.
  """
  default, old, new = (
    flax.traverse_util.flatten_dict(dict(x), sep='.')
    for x in (plain(common.get_config()), before, now)
  )
  old = {name: default.get(name) for name in new} | old
  return {
    name: f'{name} was {old[name]!r}, is {new.get(name)!r}'
    for name in sorted(old)
    if old[name] != new.get(name)
  }


@contextlib.contextmanager
def naming_changes(
  workdir: workdir_lib.Workdir, config: Mapping[str, Any]
) -> Iterator[None]:
  """Adds the settings that changed since the run began to an error."""
  try:
    yield
  except errors.UserError as e:
    saved = files.read_json(workdir.config)
    clauses = [*changed(saved, config).values()] if saved else []
    if not clauses:
      raise
    raise errors.UserError(
      f'{e}\nSettings that have changed: {"; ".join(clauses[:10])}.'
    ) from e


def describe(
  run: resolve.Run,
  task: tasks.Task,
  workdir: workdir_lib.Workdir,
  first_step: int,
) -> None:
  """Logs the model; writes settings, classes and environment, on process 0."""
  config = run.config
  if jax.process_index():
    return
  cost = flops.forward_flops(task.model, task.data.image_shape)
  logging.info(
    '%s\nForward pass: %.4g GFLOP an image.',
    models.parameter_table(task.stages[0].like.params),
    cost / 1e9,
  )
  files.write_json(environment.describe(), workdir.environment)
  before, now = files.read_json(workdir.config), plain(config)
  if first_step and (differing := changed(before, now)):
    logging.warning(
      'The config differs from that of the run so far: %s.',
      ', '.join(differing.values()),
    )
  if first_step >= config.total_steps:
    logging.warning(
      'The run has ended: none of its %d steps is left.', first_step
    )
  _warn_of_low_peaks(run.stages, [stage.schedule for stage in task.stages])
  files.write_json(now, workdir.config)
  files.write_lines(task.data.class_names, workdir.labels)
  if task.vocabulary:  # Makes the workdir readable as weights.
    vocabularies.write(config.model, task.vocabulary, workdir.folder)
