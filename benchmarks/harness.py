"""Shared by the speed benchmarks: cases, alternation, tables, JSON.

They need only jax, flax, optax, ml-collections and absl; peers need their libraries.
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import itertools
import json
import os
import statistics
import time
from typing import Any

from absl import flags
import jax

from benchmarks import machine as machine_lib
from benchmarks import turns
from vit_jax.runtime import huge_pages
from vit_jax.runtime import onednn

NUM_CLASSES = 1000
TORCH_LIBRARIES = ('timm', 'transformers')


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

  def facts(self) -> dict[str, Any]:
    """Returns what is known of it besides its speed."""
    return {
      'gflop_per_image': self.gflop_per_image,
      'compile_s': self.compile_s,
      'temporary_gib': self.temporary_gib,
      'peak_gib': machine_lib.peak_gib(),
    }

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
  # Programs share the memory of an accelerator.
  os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
  # JAX is imported, so that it must start again.
  if os.environ.get(onednn.VARIABLE) == '1':
    onednn.restart('onednn')
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
  flags.DEFINE_integer('turns', 5, 'Times that each is measured.')
  flags.DEFINE_integer('steps', 3, 'Measured steps of a turn.')
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
  """Measures all cases in turns, prints their medians, writes the JSON."""
  before = machine_lib.describe()
  found = turns.measure(make, chosen, flags.FLAGS.turns, flags.FLAGS.steps)
  peak = functools.cache(machine_lib.peak_flops)
  rows = [
    _row(case, facts, peak(case.dtype))
    for case, facts in zip(chosen, found, strict=True)
  ]
  report(rows, before, flags.FLAGS.json)


def report(
  rows: Sequence[dict[str, Any]], machine: dict[str, Any], path: str | None
) -> None:
  """Prints the table; writes the JSON if a path is given."""
  show(rows, machine)
  if path:
    with open(path, 'w', encoding='utf-8') as f:
      json.dump({**machine, 'rows': rows}, f, indent=1)


def _row(case: Case, found: dict[str, Any], peak: float) -> dict[str, Any]:
  seconds, gflop = found.pop('seconds'), found.pop('gflop_per_image')
  images = case.batch / statistics.median(seconds)
  flop_s = images * gflop * 1e9
  return {
    **dataclasses.asdict(case),
    'images_s': images,
    'slowest': case.batch / max(seconds),
    'fastest': case.batch / min(seconds),
    'tflop_s': flop_s / 1e12,
    'mfu': flop_s / peak,
    **found,
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
