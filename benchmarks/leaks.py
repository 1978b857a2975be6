"""Measures memory over many steps and predictions, and how fast Ctrl-C ends a run.

python -m benchmarks.leaks --output=results/leaks_cpu.json
"""

from collections.abc import Callable, Sequence
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any
from unittest import mock

from absl import app
from absl import flags
from absl import logging
import ml_collections
import numpy as np

from benchmarks import kills
from vit_jax import predictor
from vit_jax import train
from vit_jax.configs import run_files
from vit_jax.training import loop

_ROOT = pathlib.Path(__file__).parents[1]


def mib() -> float:
  """Returns the resident memory of this process in MiB."""
  pages = int(pathlib.Path('/proc/self/statm').read_text().split()[1])
  return pages * os.sysconf('SC_PAGE_SIZE') / 2**20


def _config(folder: pathlib.Path) -> ml_collections.ConfigDict:
  path = _ROOT / 'tests' / 'run_files' / 'tiny.py'
  return run_files.load(str(path), str(folder))


def of_training(root: pathlib.Path, steps: int, points: int) -> list:
  """Returns [step, MiB] of a run that evaluates and saves regularly."""
  config = _config(root / 'images')
  config.total_steps = steps
  config.progress_every = steps // points
  config.eval_every = config.checkpoint_every = steps // points
  rows, add = [], loop.Reports.add

  def spy(self, step, *args):
    rows.append([step, round(mib())])
    add(self, step, *args)

  with mock.patch.object(loop.Reports, 'add', spy):
    train.train_and_evaluate(config, str(root / 'run'))
  return rows


def of_predictions(root: pathlib.Path, count: int, points: int) -> list:
  """Returns [predictions, MiB] of files that are read repeatedly."""
  model = predictor.load(root / 'run' / 'artifact', batch_size=64)
  files = sorted(str(p) for p in (root / 'images').rglob('*.png'))
  names = (files * (count // len(files) + 1))[:count]
  rows = []
  for place, _ in model.probabilities(names):
    if place % max(1, count // points) == 0:
      rows.append([place, round(mib())])
  return rows


def of_many_calls(root: pathlib.Path, count: int, points: int) -> list:
  """Returns [calls, MiB] of calls with one image."""
  model = predictor.load(root / 'run' / 'artifact')
  image = np.zeros((24, 24, 3), np.uint8)
  rows = []
  for i in range(count):
    model.predict(image)
    if i % max(1, count // points) == 0:
      rows.append([i, round(mib())])
  return rows


def _children(pid: int) -> list[int]:
  result = subprocess.run(
    ['ps', '-o', 'pid=', '--ppid', str(pid)],
    capture_output=True,
    text=True,
    check=False,
  )
  found = [int(x) for x in result.stdout.split()]
  return found + [x for child in found for x in _children(child)]


def _alive(pid: int) -> bool:
  try:
    status = pathlib.Path(f'/proc/{pid}/stat').read_text()
  except OSError:
    return False
  return status.rpartition(')')[2].split()[0] != 'Z'


def _last_line(path: pathlib.Path) -> str:
  return (path.read_text().strip().splitlines() or [''])[-1][-100:]


def until_gone(
  root: pathlib.Path, send: Callable[[subprocess.Popen], None], workers: int
) -> dict:
  """Returns how long a run, and its workers, take to end."""
  workdir = root / f'stopped{time.time()}'
  log = (root / 'log').open('w', encoding='utf-8')
  process = subprocess.Popen(
    [
      sys.executable,
      '-m',
      'vit_jax.main',
      f'--config=tests/run_files/tiny.py:{root / "images"}',
      f'--workdir={workdir}',
      '--config.total_steps=1000000',
      f'--config.num_workers={workers}',
    ],
    cwd=_ROOT,
    stdout=subprocess.DEVNULL,
    stderr=log,
    start_new_session=True,
  )
  while kills.last_step(workdir) < 20 and process.poll() is None:
    time.sleep(0.05)
  everyone = [process.pid, *_children(process.pid)]
  began = time.perf_counter()
  send(process)
  process.wait()
  ended = time.perf_counter()
  while any(map(_alive, everyone)):
    time.sleep(0.01)
  return {
    'processes': len(everyone),
    'seconds_to_end': round(ended - began, 2),
    'seconds_until_workers_are_gone': round(time.perf_counter() - ended, 2),
    'exit_code': process.returncode,
    'last_line': _last_line(root / 'log'),
  }


_SIGNALS = {
  'Ctrl-C': lambda process: os.killpg(process.pid, signal.SIGINT),
  'SIGTERM': lambda process: process.terminate(),
  'SIGKILL': lambda process: process.kill(),
}


def main(argv: Sequence[str]) -> None:
  del argv
  options = flags.FLAGS
  # Background jobs of shells ignore Ctrl-C.
  signal.signal(signal.SIGINT, signal.default_int_handler)
  logging.set_verbosity(logging.WARNING)
  with tempfile.TemporaryDirectory() as name:
    root = pathlib.Path(name)
    kills.make_folder(root / 'images')
    result: dict[str, Any] = {
      'training': of_training(root, options.steps, 10),
      'predictions': of_predictions(root, options.predictions, 10),
      'calls': of_many_calls(root, options.predictions // 100, 10),
    }
    print(json.dumps(result), flush=True)
    for kind, send in _SIGNALS.items():
      for workers in (0, 2):
        row = until_gone(root, send, workers)
        result[f'{kind}, {workers} workers'] = row
        print(kind, workers, row, flush=True)
  pathlib.Path(options.output).write_text(json.dumps(result, indent=1) + '\n')


if __name__ == '__main__':
  flags.DEFINE_integer('steps', 10_000, 'Training steps.')
  flags.DEFINE_integer('predictions', 100_000, 'Images to predict.')
  flags.DEFINE_string('output', None, 'JSON file to write.', required=True)
  app.run(main)
