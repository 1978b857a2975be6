"""What the training step of a config needs on other hardware, as text."""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import os
import re
import time

import jax
from jax.experimental import topologies
import ml_collections

from vit_jax import checkpoint
from vit_jax.configs import images
from vit_jax.configs import labels
from vit_jax.configs import models as model_configs
from vit_jax.configs import registry
from vit_jax.data import batching
from vit_jax.data import datasets
from vit_jax.models import flops
from vit_jax.planning import compilation
from vit_jax.planning import memory_search
from vit_jax.planning import tables
from vit_jax.runtime import errors
from vit_jax.runtime import sharding
from vit_jax.runtime import storage
from vit_jax.training import resolve
from vit_jax.training import tasks
from vit_jax.weights import record as weights_lib
from vit_jax.weights import released


def devices(
  topology: str | None, num_devices: int | None
) -> Sequence[jax.Device]:
  """Returns devices to compile for; starts JAX for nothing else.

  Args:
    topology: TPUs that need not be here, such as 'v5e:16x16'.
    num_devices: number of virtual CPU devices; None for the devices here.

  Raises:
    errors.UserError: if there is no such topology, or libtpu is not installed.
  """
  if topology or num_devices:
    jax.config.update('jax_platforms', 'cpu')
  if num_devices:
    jax.config.update('jax_num_cpu_devices', num_devices)
  if not topology:
    return jax.devices()
  # Keeps libtpu from looking for a TPU.
  os.environ['TPU_SKIP_MDS_QUERY'] = '1'
  os.environ['TPU_WORKER_HOSTNAMES'] = 'localhost'
  # A host has four chips; a single chip needs other bounds.
  is_one_chip = set(re.split('[:x]', topology)[1:]) == {'1'}
  options = {'chips_per_host_bounds': (1, 1, 1)} if is_one_chip else {}
  try:
    return topologies.get_topology_desc(
      platform='tpu', topology_name=topology, **options
    ).devices
  except (RuntimeError, ValueError) as e:
    if 'not installed' in str(e):
      raise errors.UserError(
        "A topology needs libtpu: pip install 'vit_jax[plan]'."
      ) from e
    reason = errors.first_line(e)
    raise errors.UserError(
      f'The topology {topology} is not known: {reason}. Try v5e:16x16, v5p:8x8x8'
      f' or v6e:4x4.'
    ) from e


def local_pretrained(config: ml_collections.ConfigDict) -> resolve.Pretrained:
  """Returns what pretrained weights say about an open model, without a download.

  Raises:
    errors.UserError: if the weights are not here and their model is not known.
  """
  if config.model is not None:
    return None, {}
  name = config.pretrained
  weights = _weights_here(name, config.pretrained_dir)
  if weights is not None:
    return None, resolve.settings_of(weights)
  entry = registry.entries().get(name)
  if entry and not entry.is_family:
    model = model_configs.get_model_config(entry.model)
    return None, {'model': model.to_dict()}
  raise errors.UserError(
    f'config.model is None, and the weights that say which model it is,'
    f' {name}, are not here: a plan downloads nothing. Set config.model, or'
    f' fetch them and give their path as config.pretrained=PATH.'
  )


def _weights_here(name: str, directory: str) -> weights_lib.Weights | None:
  """Returns weights that need no download; None if they would."""
  path = released.here(name, directory)
  return checkpoint.read(path) if path else None


def read_teacher(name: str, directory: str) -> weights_lib.Weights:
  """Returns the weights of a teacher; raises `errors.UserError` if they are not here."""
  weights = _weights_here(name, directory)
  if weights is None:
    raise errors.UserError(
      f'{name} is not here: a plan downloads nothing. Fetch it and give its path.'
    )
  return weights


def resolve_here(
  config: ml_collections.ConfigDict,
  mesh: jax.sharding.Mesh,
  num_classes: int | None = None,
) -> resolve.Run:
  """Resolves a config without a download and without measuring anything.

  The devices of the mesh need not be here, nor the data set if `num_classes` is
  given.

  Raises:
    errors.UserError: if neither the weights nor the data set are known here.
  """
  if not num_classes and storage.is_address(config.dataset):
    raise errors.UserError(
      f'config.dataset is {config.dataset!r}, which is not on this machine, and'
      f' nothing is downloaded here: give num_classes=N.'
    )
  return resolve.resolve(
    config,
    mesh,
    get_pretrained=local_pretrained,
    open_splits=functools.partial(
      compilation.open_splits, num_classes=num_classes
    ),
    with_data=_as_written if num_classes else datasets.with_data,
    measure=False,
  )


def _as_written(
  config: ml_collections.ConfigDict,
) -> ml_collections.ConfigDict:
  """Completes a config without its data, which may not be here."""
  return labels.complete(config, config.task or labels.MULTICLASS)


def plan(
  run: resolve.Run,
  *,
  limit: int | None = None,
  search: bool = True,
  say: Callable[[str], None] = print,
) -> str:
  """Returns what the step of a run takes on each device of its mesh.

  Args:
    run: result of `resolve_here`.
    limit: bytes that a device may hold; None, if unknown, searches for nothing.
    search: whether to look for settings that fit.
    say: takes a line about progress.

  Raises:
    errors.UserError: if the batch cannot be split.
  """
  config, mesh = run.config, run.mesh
  # Data without the vocabulary of texts, which could need a download.
  data = batching.of_config(config, run.splits)
  task = tasks.make(run, data, read_teacher)

  def compile_setting(setting: memory_search.Setting) -> compilation.Program:
    changed, changed_task = run, task
    if setting != first:
      other = ml_collections.ConfigDict(config)
      other.update(vars(setting))
      changed = dataclasses.replace(run, config=other)
      changed_task = tasks.make(changed, data, read_teacher)
    say(f'Compiling {setting} ...')
    start = time.perf_counter()
    program = compilation.compile_step(changed, changed_task)
    say(f'... {time.perf_counter() - start:.0f} s.')
    return program

  first = memory_search.Setting(config.batch, config.accum_steps, config.remat)
  program = compile_setting(first)
  device = mesh.devices.flat[0]
  image_flops = flops.train_flops(task.model, data.image_shape)
  parts = [
    f'{config.model.model_name}, {config.dtype}, {first}, on {mesh.size} x'
    f' {device.device_kind}, mesh {dict(mesh.shape)}',
    tables.memory(program, limit),
    tables.state(compilation.largest_stage(task).like, mesh),
    tables.work(
      program,
      mesh.size,
      image_flops,
      config.batch,
      flops.peak_flops(mesh.devices.flat),
    ),
    tables.collectives(program),
  ]
  if limit and search:
    found = memory_search.Search(
      compile_setting,
      limit,
      sharding.parts(mesh),
      {first: program},
      images.fewest_in_a_part(config.pp),
    )
    parts.append(tables.search(found, first, config.model))
  return '\n\n'.join(filter(None, parts))
