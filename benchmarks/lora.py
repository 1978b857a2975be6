"""Accuracy, memory and time of full fine-tuning, LoRA, and training the head alone.

python -m benchmarks.lora --dataset=/path/to/cifar10 --steps=60 --batch=16 \
  --test='test[:1000]' --timed_steps=5 --json=results/lora_cpu.json
python -m benchmarks.lora --variant=ViT-B_16 --batch=8 \
  --json=results/lora_memory_cpu.json

The first fine-tunes ViT-Mini_8 on a few images of each class, each way for as many
steps. The learning rate of each is chosen on other training images, as `vit-jax sweep`
does it; the test images are evaluated once for each seed. The same command continues.
The second trains nothing: it compiles the step of a model of any size.

Memory is what the compiler plans for a training step on one device, as in `vit-jax
plan`. Times are medians of steps in alternation, on one batch.
"""

from collections.abc import Callable, Sequence
import dataclasses
import statistics
import time
from typing import Any

from absl import app
from absl import flags
import flax.traverse_util
import jax
import jax.numpy as jnp
import ml_collections

from benchmarks import harness
from benchmarks import machine as machine_lib
import vit_jax
from vit_jax import sweep
from vit_jax.configs import common
from vit_jax.configs import models
from vit_jax.data import batching
from vit_jax.planning import compilation
from vit_jax.planning import plan
from vit_jax.runtime import sharding
from vit_jax.training import freeze
from vit_jax.training import tasks

# Settings of each method, and the rates to try.
_METHODS: dict[str, tuple[dict[str, Any], tuple[float, ...]]] = {
  'full': ({}, (0.0003, 0.001)),
  'LoRA, rank 8': ({'lora_rank': 8}, (0.001, 0.003)),
  'head alone': ({'freeze': (r'(?!head/)',)}, (0.003, 0.01)),
}

_MIB = 2**20
_HELD_OUT = 99  # Percent of the training images that trials do not hold out.


@dataclasses.dataclass(frozen=True)
class Method:
  """A way to fine-tune: its settings, what it needs, and a step."""

  config: ml_collections.ConfigDict
  needs: dict[str, Any]
  step: Callable[[], Any] | None


def _config(settings: dict[str, Any]) -> ml_collections.ConfigDict:
  options = flags.FLAGS
  config = vit_jax.run_file('finetune_mini', options.dataset or 'cifar10')
  config.total_epochs, config.total_steps = None, options.steps
  config.warmup_epochs, config.warmup_steps = None, options.steps // 10
  config.checkpoint_every_epochs, config.report = 0.0, False
  config.pp.shots, config.pp.test = options.shots, options.test
  config.batch = options.batch
  if options.variant:
    config.model = models.get_model_config(options.variant)
    config.pp.crop, config.scan_layers = options.resolution, True
  config.update(settings)
  return config


def compiled(config: ml_collections.ConfigDict) -> Method:
  """Compiles the step of a config for one device."""
  topology = flags.FLAGS.topology
  mesh = sharding.make_mesh(devices=plan.devices(topology, None)[:1])
  run = plan.resolve_here(config, mesh, 10)
  task = tasks.make(run, batching.of_config(run.config, run.splits))
  program = compilation.compile_step(run, task)
  stage = task.stages[0]
  trained, _ = freeze.split(stage.like.params, stage.freeze)
  needs = {
    'trained': sum(
      x.size for x in flax.traverse_util.flatten_dict(trained).values()
    ),
    'parameters_mib': program.parameters / _MIB,
    'optimizer_mib': program.optimizer / _MIB,
    'temporaries_mib': program.temporaries / _MIB,
    'peak_mib': (program.peak or 0) / _MIB,
  }
  step = None if topology or flags.FLAGS.variant else _step(run, task)
  return Method(config, needs, step)


def _step(run: Any, task: tasks.Task) -> Callable[[], Any]:
  """Returns a function that does a step on one batch and waits for it."""
  stage, traced = compilation.trace_step(run, task)
  program = traced.lower().compile()
  empty = lambda x: jnp.zeros(x.shape, x.dtype)
  batch = jax.tree.map(empty, compilation.batch(run, task.data))
  held = [jax.tree.map(empty, stage.like)]
  key = jax.random.key(0)

  def step() -> None:
    held[0] = jax.block_until_ready(program(held[0], batch, key)[0])

  return step


def seconds_of(methods: Sequence[Method]) -> list[dict[str, Any]]:
  """Returns the milliseconds of a step of each method, run in alternation."""
  times: list[list[float]] = [[] for _ in methods]
  for _ in range(1 + flags.FLAGS.timed_steps):
    for method, found in zip(methods, times, strict=True):
      start = time.perf_counter()
      if method.step:
        method.step()
        found.append(1e3 * (time.perf_counter() - start))
  return [
    {'ms_step': statistics.median(found[1:])} if found else {}
    for found in times
  ]


def accuracy(
  config: ml_collections.ConfigDict, rates: Sequence[float], name: str
) -> dict[str, Any]:
  """Returns the best rate, and the accuracy of the seeds on the test images."""
  options = flags.FLAGS
  config = common.with_sweep(
    config,
    rates,
    train=f'train[:{_HELD_OUT}%]',
    holdout=f'train[{_HELD_OUT}%:]',
    seeds=[int(seed) for seed in options.seeds],
  )
  result = sweep.sweep(config, f'{options.workdir}/{name.replace(" ", "_")}')
  found = list(result['test'].values())
  held_out = {x['base_lr']: x.get('accuracy') for x in result['trials']}
  return {
    'held_out': '; '.join(
      f'{rate:g}: {value:.3f}' for rate, value in held_out.items() if value
    ),
    'base_lr': result['best_base_lr'],
    'accuracy': statistics.mean(found),
    'of_seeds': '; '.join(f'{x:.4f}' for x in found),
  }


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'Unexpected arguments: {argv[1:]}')
  methods = {
    name: compiled(_config(settings))
    for name, (settings, _) in _METHODS.items()
  }
  times = seconds_of(list(methods.values()))
  rows = []
  for (name, method), seconds in zip(methods.items(), times, strict=True):
    row = {'method': name, **method.needs, **seconds}
    if flags.FLAGS.dataset:
      row |= accuracy(method.config, _METHODS[name][1], name)
    rows.append(row)
  harness.report(rows, machine_lib.describe(), flags.FLAGS.json)


if __name__ == '__main__':
  harness.start()
  flags.DEFINE_string('dataset', '', 'Folder of images; empty: memory alone.')
  flags.DEFINE_string('workdir', '/tmp/lora', 'Folder of the runs.')
  flags.DEFINE_integer('shots', 50, 'Training images of each class.')
  flags.DEFINE_string('test', 'test[:2000]', 'Test images.')
  flags.DEFINE_integer('steps', 100, 'Steps of each run.')
  flags.DEFINE_integer('batch', 32, 'Images a step.')
  flags.DEFINE_list('seeds', ['0', '1'], 'Seeds of the final runs.')
  flags.DEFINE_integer('timed_steps', 9, 'Steps whose time is measured.')
  flags.DEFINE_string('variant', '', 'Another model, for memory alone.')
  flags.DEFINE_integer('resolution', 224, 'Its image side, pixels.')
  flags.DEFINE_string('topology', None, 'TPU to compile for, such as v5e:1x1.')
  flags.DEFINE_string('json', None, 'File for the numbers.')
  app.run(main)
