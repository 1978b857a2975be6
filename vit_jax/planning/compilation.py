"""Compiles the training step of a config without its data and devices."""

import dataclasses
import functools
import math
import re
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections

from vit_jax.configs import spec
from vit_jax.data import batching
from vit_jax.data import datasets
from vit_jax.data import pipeline
from vit_jax.data import sources
from vit_jax.data import stand_ins
from vit_jax.data.rows import row_weights
from vit_jax.models import arithmetic
from vit_jax.models import flops
from vit_jax.planning import hlo
from vit_jax.runtime import sharding
from vit_jax.training import out_of_memory
from vit_jax.training import resolve
from vit_jax.training import stages
from vit_jax.training import tasks


@dataclasses.dataclass(frozen=True)
class Program:
  """What a compiled step needs.

  Attributes:
    parameters: bytes of the parameters on one device.
    optimizer: bytes of the optimizer state on one device.
    temporaries: peak bytes of activations, gradients and the like on one device;
      0 if the compiler gave up.
    peak: peak bytes of everything on one device; if the compiler gave up, what it
      asked for, or None.
    fits: False if the compiler ran out of memory.
    flops: FLOPs of the matrix products of one step on all devices, including those
      that `remat` repeats.
    collectives: operations of one step of one device, by kind.
    teacher: bytes of the parameters of a teacher on one device.
    average: bytes of the moving average of the parameters on one device.
  """

  parameters: int
  optimizer: int
  temporaries: int
  peak: int | None
  fits: bool
  flops: float
  collectives: dict[str, hlo.Moved]
  teacher: int = 0
  average: int = 0


def open_splits(
  config: ml_collections.ConfigDict, num_classes: int | None = None
) -> datasets.Splits:
  """Returns a stand-in for the data set of a config, enough to trace a step.

  Without `num_classes`, `stand_ins` finds it. Raises `errors.UserError` if
  the data set is neither known nor here.
  """

  def decoded(split: str, train: bool) -> pipeline.Decoded:
    if spec.has_texts(config.model):
      source: sources.Source = stand_ins.StandIn(0)
    else:
      source = stand_ins.of_dataset(
        config.dataset,
        split,
        num_classes=num_classes,
        data_dir=config.tfds_data_dir,
        columns=datasets.columns_of(config),
      )
    layout = datasets.layout(config, source)
    return pipeline.Decoded(source, train=train, **layout)

  return datasets.Splits(
    decoded(config.pp.train, train=True), decoded(config.pp.test, train=False)
  )


def batch(
  run: resolve.Run, data: batching.Data
) -> dict[str, jax.ShapeDtypeStruct]:
  """Returns the shapes, dtypes and shardings of a training batch."""
  config = run.config
  struct = functools.partial(
    jax.ShapeDtypeStruct, sharding=sharding.batch_sharding(run.mesh)
  )
  size: tuple[int, ...] = data.preprocess.size
  raw = data.train.source.image_shape
  if data.preprocess.on_device and raw is not None:
    size = raw[:2]
  dtype = jnp.float32 if data.train.is_float else jnp.uint8
  image = struct((config.batch, *size, data.train.num_channels), dtype)
  if spec.has_texts(config.model):
    shape = (config.batch, config.model.pp.max_len)
    return {'image': image, 'tokens': struct(shape, jnp.int32)}
  labels: Any = getattr(data.train.source, 'label_shape', ())
  dtype = jnp.float32 if labels else jnp.int32
  found = {'image': image, 'label': struct((config.batch, *labels), dtype)}
  if row_weights.of_source(data.train.source) is not None:
    found['weight'] = struct((config.batch,), jnp.float32)
  return found


def trace_step(
  run: resolve.Run, task: tasks.Task
) -> tuple[stages.Stage, jax.stages.Traced]:
  """Returns the largest stage of a task, and its step traced for the mesh."""
  mesh = run.mesh
  key = jax.eval_shape(lambda: jax.random.key(0))
  key = jax.ShapeDtypeStruct(
    key.shape, key.dtype, sharding=sharding.replicated(mesh)
  )
  with arithmetic.compiling_for(mesh.devices.flat[0].platform):
    stage = largest_stage(task)
    step: Any = stage.step
    fixed = (task.teacher.like,) if task.teacher else ()
    return stage, step.trace(stage.like, batch(run, task.data), key, *fixed)


def compile_step(run: resolve.Run, task: tasks.Task) -> Program:
  """Compiles the training step for the devices of a mesh.

  Raises:
    errors.UserError: if the batch cannot be split over the mesh.
  """
  config = run.config
  for size in (config.batch // config.accum_steps, config.batch_eval):
    sharding.data_shard(run.mesh, size)
  stage, traced = trace_step(run, task)
  program = functools.partial(
    Program,
    parameters=device_bytes(stage.like.params),
    optimizer=device_bytes(stage.like.opt_state),
    teacher=device_bytes(task.teacher.like) if task.teacher else 0,
    average=device_bytes(stage.like.ema),
    flops=flops.count(traced.jaxpr.jaxpr),
  )
  try:
    compiled = traced.lower().compile()
  except jax.errors.JaxRuntimeError as e:
    if not out_of_memory.is_out_of_memory(e):
      raise
    return program(temporaries=0, peak=_needed(e), fits=False, collectives={})
  memory = compiled.memory_analysis()
  return program(
    temporaries=memory.temp_size_in_bytes,
    # State that is donated is in both arguments and results.
    peak=memory.argument_size_in_bytes
    + memory.output_size_in_bytes
    - memory.alias_size_in_bytes
    + memory.temp_size_in_bytes
    + memory.generated_code_size_in_bytes,
    fits=True,
    collectives=hlo.collectives(compiled.as_text()),
  )


def _needed(error: Exception) -> int | None:
  """Returns the bytes that a compiler that gave up asked for, if it says so."""
  match = re.search(r'(?:Used |required .*?\()([\d.]+)([KMGT])', str(error))
  if not match:
    return None
  return int(float(match[1]) * 2 ** (10 * (1 + 'KMGT'.index(match[2]))))


def largest_stage(task: tasks.Task) -> stages.Stage:
  """Returns the stage that trains the most parameters."""
  return max(task.stages, key=lambda stage: device_bytes(stage.like))


def device_bytes(tree: Any) -> int:
  """Returns the bytes on one device of `jax.ShapeDtypeStruct`s with shardings."""
  return sum(
    x.dtype.itemsize * math.prod(x.sharding.shard_shape(x.shape))
    for x in jax.tree.leaves(tree)
  )
