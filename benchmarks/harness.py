"""Shared by the speed benchmarks: cases, alternation, tables, JSON.

They need only jax, flax, optax, ml-collections and absl; peers need their libraries.
"""

from collections.abc import Callable, Sequence
import dataclasses
import importlib.metadata
import itertools
import json
import os
import platform
import statistics
import time
from typing import Any

from absl import flags
import jax
import jax.numpy as jnp

from vit_jax.models import flops
from vit_jax.runtime import huge_pages

NUM_CLASSES = 1000
PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'torch', 'timm', 'transformers')


@dataclasses.dataclass(frozen=True)
class Case:
  """A program to measure; `library` is 'vit_jax' or a peer."""

  library: str
  variant: str
  resolution: int
  batch: int
  dtype: str
  remat: str = ''
  scan_layers: bool = False
  attention: str = 'xla'
  policy: str = ''  # Changes of `programs.policy`, joined by '+'.
  compiled: bool = True  # Whether torch.compile is used on a GPU.


@dataclasses.dataclass(frozen=True)
class Program:
  """A compiled case: `start` begins one step, `wait` waits for what it returned."""

  start: Callable[[], Any]
  gflop_per_image: float
  compile_s: float
  temporary_gib: float | None = None
  wait: Callable[[Any], Any] = jax.block_until_ready

  def run(self) -> None:
    """Does one step."""
    self.wait(self.start())

  def seconds(self, steps: int) -> float:
    """Returns the time of one of `steps` steps that follow each other."""
    begin, last = time.perf_counter(), None
    for _ in range(steps):
      last = self.start()
    self.wait(last)
    return (time.perf_counter() - begin) / steps


def start() -> None:
  """Prepares memory and threads of the process. Call it first."""
  # Otherwise threads of PyTorch spin after a step and slow the next program.
  os.environ.setdefault('OMP_WAIT_POLICY', 'passive')
  huge_pages.use()  # Training uses them too; inference is as fast without.


def define_flags() -> None:
  """Defines the flags of the cases, which are all combinations of the lists."""
  flags.DEFINE_list('variant', ['ViT-B_16'], 'Released models.')
  flags.DEFINE_list('resolution', ['224'], 'Image sides, pixels.')
  flags.DEFINE_list('batch', ['8'], 'Images a step.')
  flags.DEFINE_list(
    'dtype', ['float32', 'bfloat16'], 'Precision of matrix products.'
  )
  flags.DEFINE_list(
    'against', [], 'Peers that are installed: official, timm, transformers.'
  )
  flags.DEFINE_list('remat', [''], 'As config.remat; of vit_jax alone.')
  flags.DEFINE_list('scan_layers', ['false'], 'config.scan_layers of vit_jax.')
  flags.DEFINE_list('attention', ['xla'], 'config.attention of vit_jax.')
  flags.DEFINE_integer('steps', 5, 'Measured steps of each.')
  flags.DEFINE_string('json', None, 'File for the numbers.')


def cases() -> list[Case]:
  """Returns the cases of the flags."""
  options = flags.FLAGS
  chosen = []
  for variant, resolution, batch, dtype in itertools.product(
    options.variant, options.resolution, options.batch, options.dtype
  ):
    what = (variant, int(resolution), int(batch), dtype)
    chosen += [
      Case('vit_jax', *what, remat, scan == 'true', attention)
      for remat, scan, attention in itertools.product(
        options.remat or [''], options.scan_layers, options.attention
      )
    ]
    chosen += [Case(library, *what) for library in options.against]
  return chosen


def measure(make: Callable[[Case], Program], chosen: Sequence[Case]) -> None:
  """Runs all cases in alternation, prints their medians, writes the JSON."""
  programs = [make(case) for case in chosen]
  for program in programs:
    program.run()
  times: list[list[float]] = [[] for _ in programs]
  # A slow minute of the machine then slows all of them.
  for _ in range(flags.FLAGS.steps):
    for program, seconds in zip(programs, times, strict=True):
      seconds.append(program.seconds(1))
  peaks = {dtype: peak_flops(dtype) for dtype in {c.dtype for c in chosen}}
  rows = [
    _row(case, program, statistics.median(seconds), peaks[case.dtype])
    for case, program, seconds in zip(chosen, programs, times, strict=True)
  ]
  report(rows, describe_machine(), flags.FLAGS.json)


def report(
  rows: Sequence[dict[str, Any]], machine: dict[str, Any], path: str | None
) -> None:
  """Prints the table; writes the JSON if a path is given."""
  show(rows, machine)
  if path:
    with open(path, 'w', encoding='utf-8') as f:
      json.dump({**machine, 'rows': rows}, f, indent=1)


def _row(
  case: Case, program: Program, seconds: float, peak: float
) -> dict[str, Any]:
  images = case.batch / seconds
  flop_s = images * program.gflop_per_image * 1e9
  return {
    **dataclasses.asdict(case),
    'images_s': images,
    'ms_step': 1e3 * seconds,
    'tflop_s': flop_s / 1e12,
    'mfu': flop_s / peak,
    'compile_s': program.compile_s,
    'temporary_gib': program.temporary_gib,
    'peak_gib': peak_gib(),
  }


def peak_gib() -> float | None:
  """Returns the peak memory of the device, over all cases of this run."""
  stats = jax.devices()[0].memory_stats() or {}
  peak = stats.get('peak_bytes_in_use')
  return peak / 2**30 if peak else None


def peak_flops(dtype: str, size: int = 4096) -> float:
  """Returns the peak FLOP/s of the device: published, or of a large product."""
  if published := flops.peak_flops(jax.devices()[0]):
    return published
  x = jnp.ones((size, size), dtype)
  product = jax.jit(lambda x: jnp.dot(x, x, preferred_element_type=jnp.float32))
  jax.block_until_ready(product(x))
  times = []
  for _ in range(5):
    start = time.perf_counter()
    jax.block_until_ready(product(x))
    times.append(time.perf_counter() - start)
  return 2 * size**3 / statistics.median(times)


def describe_machine(packages: Sequence[str] = PACKAGES) -> dict[str, Any]:
  """Returns the device, the processor and the versions of packages."""
  versions = {}
  for name in packages:
    try:
      versions[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
      continue
  return {
    'device': jax.devices()[0].device_kind,
    'machine': platform.machine(),
    'python': platform.python_version(),
    'versions': versions,
  }


def show(rows: Sequence[dict[str, Any]], machine: dict[str, Any]) -> None:
  """Prints rows as a Markdown table, below the machine that they describe."""
  print(json.dumps(machine))
  used = [
    name for name in rows[0] if any(row[name] is not None for row in rows)
  ]
  print('| ' + ' | '.join(used) + ' |')
  print('|' + ' --- |' * len(used))
  for row in rows:
    cells = (
      f'{row[name]:.4g}' if isinstance(row[name], float) else str(row[name])
      for name in used
    )
    print('| ' + ' | '.join(cells) + ' |')
