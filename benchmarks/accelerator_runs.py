"""Whole runs on an accelerator: from JPEG files, killed and resumed, traced."""

import collections
from collections.abc import Sequence
import gzip
import json
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import cv2
import numpy as np

from benchmarks import kills

Row = dict[str, Any]

_ROOT = pathlib.Path(__file__).parents[1]
_SHOWN = 15  # Operations of a trace.


def make_photographs(folder: pathlib.Path, count: int) -> None:
  """Writes JPEG files of 500 x 375 pixels, as smooth as photographs, in two classes."""
  rng = np.random.default_rng(0)
  for i in range(count):
    path = folder / ('train', 'test')[i % 8 < 2] / 'ab'[i % 2] / f'{i}.jpg'
    path.parent.mkdir(parents=True, exist_ok=True)
    image = rng.integers(0, 256, (24, 32, 3), np.uint8)
    image = cv2.resize(image, (500, 375), interpolation=cv2.INTER_CUBIC)
    cv2.imwrite(str(path), image)


def command(
  model: str,
  folder: pathlib.Path | str,
  workdir: pathlib.Path,
  settings: Sequence[str],
) -> list[str]:
  """Returns the command of a run from random weights, without evaluation."""
  return [
    sys.executable,
    '-m',
    'vit_jax.main',
    f'--config=configs/folder.py:{model},{folder}',
    f'--workdir={workdir}',
    '--config.pretrained=',
    '--config.report=False',
    '--config.accum_steps=1',
    '--config.warmup_steps=1',
    '--config.eval_every=0',
    '--config.dtype=bfloat16',
    *(f'--config.{setting}' for setting in settings),
  ]


def _run(arguments: Sequence[str]) -> None:
  result = subprocess.run(
    arguments, cwd=_ROOT, capture_output=True, text=True, check=False
  )
  if result.returncode:
    raise RuntimeError(result.stderr.strip().splitlines()[-1])


def photographs(
  model: str,
  images: str,
  count: int,
  settings: Sequence[str],
) -> Row:
  """Trains from JPEG files; returns images/s, those of waiting for input included.

  Args:
    model: released model.
    images: folder; '' makes `count` files.
    count: number of files to make.
    settings: overrides of the config, such as 'batch=32'.
  """
  with tempfile.TemporaryDirectory() as name:
    root = pathlib.Path(name)
    if not images:
      make_photographs(root / 'images', count)
    _run(command(model, images or root / 'images', root / 'run', settings))
    text = (root / 'run' / 'metrics.jsonl').read_text()
  rows = [json.loads(line) for line in text.splitlines()]
  speeds = [row['img_sec_train'] for row in rows if 'img_sec_train' in row]
  if not speeds[1:]:
    raise RuntimeError('The run has too few steps to measure its speed.')
  later = speeds[1:]  # The first has the compilation.
  return {
    'images_s': statistics.median(later),
    'slowest': min(later),
    'fastest': max(later),
  }


def resume(model: str, settings: Sequence[str], kill_at: int) -> Row:
  """Kills a run after a step and continues it; compares it with an unbroken one."""
  with tempfile.TemporaryDirectory() as name:
    root = pathlib.Path(name)
    make_photographs(root / 'images', 64)
    whole, killed = (
      command(model, root / 'images', root / x, [*settings, 'progress_every=1'])
      for x in ('whole', 'killed')
    )
    _run(whole)
    process = subprocess.Popen(
      killed, cwd=_ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while kills.last_step(root / 'killed') < kill_at and process.poll() is None:
      time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    stopped_at = kills.last_step(root / 'killed')
    _run(killed)
    got, want = (
      (root / x / 'artifact' / 'model.npz').read_bytes()
      for x in ('killed', 'whole')
    )
  return {
    'killed': process.returncode == -signal.SIGKILL,
    'killed_at': stopped_at,
    'same_bits': got == want,
  }


def trace(model: str, settings: Sequence[str]) -> Row:
  """Traces steps of a run; returns the operations that take the most time."""
  with tempfile.TemporaryDirectory() as name:
    root = pathlib.Path(name)
    make_photographs(root / 'images', 64)
    _run(command(model, root / 'images', root / 'run', settings))
    [path] = (root / 'run').rglob('perfetto_trace.json.gz')
    events = json.loads(gzip.decompress(path.read_bytes()))['traceEvents']
  return operations(events)


def operations(events: Sequence[dict[str, Any]]) -> Row:
  """Returns ms of the operations of a trace by name, the longest first.

  Operations of a device have its name as their process; without a device, those of
  XLA's threads count.
  """
  processes = {
    e['pid']: e['args']['name']
    for e in events
    if e.get('name') == 'process_name'
  }
  devices = {pid for pid, x in processes.items() if '/device:' in x}
  total: collections.Counter[str] = collections.Counter()
  for event in events:
    if 'dur' not in event or (devices and event['pid'] not in devices):
      continue
    if devices or 'hlo_op' in event.get('args', {}):
      total[event['name']] += event['dur']
  whole = sum(total.values()) / 1e3
  if not whole:
    raise RuntimeError('The trace has no operations.')
  return {
    'ms': whole,
    'operations': {
      name: round(us / 1e3, 3) for name, us in total.most_common(_SHOWN)
    },
  }
