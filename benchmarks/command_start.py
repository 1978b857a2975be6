"""Measures how long commands take from the shell to their answer.

python -m benchmarks.command_start --turns=7 --json=results/command_start_cpu.json

`predict` classifies one image with ViT-Mini_8, `train` does one step on the digits. Cold:
the cache of compiled programs is empty; warm: the command ran before. The commands
run in turns, each in processes of its own.
"""

import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from absl import app
from absl import flags
import cv2
import numpy as np

from benchmarks import harness
from benchmarks import machine as machine_lib

_TURNS = flags.DEFINE_integer('turns', 7, 'Times that each is measured.')
_JSON = flags.DEFINE_string('json', None, 'File for the numbers.')

_COMMANDS = {
  '--help': ['--help'],
  'predict': ['predict', '--model=ViT-Mini_8', 'image.png'],
  'train': [
    'train',
    '--config=digits',
    '--workdir=run',
    '--config.total_steps=1',
    '--config.warmup_steps=0',
    '--config.eval_every=0',
    '--config.report=False',
  ],
}


def _seconds(
  name: str, folder: pathlib.Path, cache: str
) -> tuple[float, float]:
  """Returns seconds on the clock and of the processor."""
  shutil.rmtree(folder / 'run', ignore_errors=True)
  if cache == 'cold':
    shutil.rmtree(folder / 'cache', ignore_errors=True)
  before = _processor()
  start = time.perf_counter()
  subprocess.run(
    [sys.executable, '-m', 'vit_jax', *_COMMANDS[name]],
    cwd=folder,
    env=os.environ
    | {
      'XDG_CACHE_HOME': str(folder / 'cache'),
      # Python keeps the modules that it compiled, as it does by itself.
      'PYTHONDONTWRITEBYTECODE': '',
      'PYTHONPYCACHEPREFIX': str(folder / 'bytecode'),
      'PYTHONPATH': str(pathlib.Path(__file__).parents[1]),
    },
    capture_output=True,
    check=True,
  )
  return time.perf_counter() - start, _processor() - before


def _processor() -> float:
  used = resource.getrusage(resource.RUSAGE_CHILDREN)
  return used.ru_utime + used.ru_stime


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'Unexpected arguments: {argv[1:]}')
  cases = [(n, c) for n in _COMMANDS for c in ('cold', 'warm')]
  found: dict[tuple[str, str], list[tuple[float, float]]] = {
    case: [] for case in cases if case != ('--help', 'cold')
  }
  before = machine_lib.describe()
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    image = np.random.default_rng(0).integers(0, 256, (48, 64, 3), np.uint8)
    cv2.imwrite(str(folder / 'image.png'), image)
    for _ in range(_TURNS.value):
      for case, times in found.items():
        times.append(_seconds(case[0], folder, case[1]))
  rows = [_row(*case, times) for case, times in found.items()]
  harness.report(rows, before, _JSON.value)


def _row(
  name: str, cache: str, times: list[tuple[float, float]]
) -> dict[str, Any]:
  clock, processor = zip(*times, strict=True)
  return {
    'command': name,
    'cache': cache,
    'seconds': statistics.median(clock),
    'fastest': min(clock),
    'slowest': max(clock),
    'processor_s': statistics.median(processor),
  }


if __name__ == '__main__':
  app.run(main)
