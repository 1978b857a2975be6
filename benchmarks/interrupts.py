"""Interrupts runs at random moments and checks how they end.

python -m benchmarks.interrupts --count=200 --output=results/interrupts_cpu.json

A run on a folder, with 0, 1 or 2 workers, gets Ctrl-C as a terminal sends it, to all
its processes: while it starts, compiles, trains, evaluates or saves. It has to end
with exit code 130 and one line, without a trace, and leave no process; after a step,
it must have saved the last one, and the next run resumes from there.
"""

import collections
from collections.abc import Sequence
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

from absl import app
from absl import flags

from benchmarks import kills

_WORKERS = (0, 1, 2)
_LIMIT = 300  # Seconds after which a run counts as hanging.

# Seconds after a line of the log, or after the start, at which Ctrl-C may come.
_MOMENTS = {
  'start': ('', (0.3, 8)),
  'compilation': ('Forward pass', (0, 4)),
  'steps': ('Step 1:', (0, 3)),
  'evaluation': ('Step 13:', (0, 1)),
  'saving': ('Step 19:', (0, 1)),
}


@contextlib.contextmanager
def load(processes: int):
  """Keeps processors busy."""
  busy = [
    subprocess.Popen([sys.executable, '-c', 'while True: pass'])
    for _ in range(processes)
  ]
  try:
    yield
  finally:
    for process in busy:
      process.kill()


def start(folder: pathlib.Path, workdir: pathlib.Path, workers: int, log):
  """Starts a run that does not end by itself, in a session of its own."""
  return kills.start_run(
    folder,
    workdir,
    log,
    f'num_workers={workers}',
    'total_steps=100000',
    'checkpoint_every=20',
    'eval_every=14',
    start_new_session=True,
  )


def members(session: int) -> list[int]:
  """Returns the processes of a session that are alive."""
  found = []
  for path in pathlib.Path('/proc').glob('[0-9]*/stat'):
    try:
      fields = path.read_text().rpartition(')')[2].split()
    except OSError:
      continue
    if int(fields[3]) == session and fields[0] != 'Z':
      found.append(int(path.parent.name))
  return found


def gone(session: int, seconds: float) -> bool:
  """Waits until no process of a session is left; returns False on timeout."""
  end = time.monotonic() + seconds
  while members(session) and time.monotonic() < end:
    time.sleep(0.01)
  return not members(session)


def interrupt_once(
  folder: pathlib.Path, root: pathlib.Path, number: int
) -> dict:
  """Interrupts a run that resumes from the last one, with its workers."""
  rng = random.Random(number)
  moment = list(_MOMENTS)[number % len(_MOMENTS)]
  workers = _WORKERS[number // len(_MOMENTS) % len(_WORKERS)]
  workdir, log = root / str(number), root / f'{number}.log'
  line, (earliest, latest) = _MOMENTS[moment]
  with log.open('w', encoding='utf-8') as f:
    process = start(folder, workdir, workers, f)
    while line not in log.read_text() and process.poll() is None:
      time.sleep(0.005)
    time.sleep(rng.uniform(earliest, latest))
    before, began = log.read_text(), time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    ended = left = True
    try:
      process.wait(_LIMIT)
    except subprocess.TimeoutExpired:
      ended = False
    seconds = time.monotonic() - began
    left = not gone(process.pid, _LIMIT)
    seconds_with_workers = time.monotonic() - began
    for pid in members(process.pid):
      os.kill(pid, signal.SIGKILL)
    process.wait()
  text = log.read_text()
  saved = re.findall(r'Interrupted: saving step (\d+)', text)
  steps = re.findall(r'Step (\d+): ', text)
  folder = workdir / 'checkpoints'
  whole = [int(p.name) for p in folder.glob('*') if p.name.isdigit()]
  return {
    'moment': moment,
    'workers': workers,
    'in_python_itself': 'vit_jax' not in before and 'File "<frozen' in text,
    'seconds': round(seconds, 2),
    'seconds_until_workers_are_gone': round(seconds_with_workers, 2),
    'ended': ended,
    'left': left,
    'exit_code': process.returncode,
    'trace': 'Traceback' in text,
    'last_line': text.strip().split('\n')[-1][-200:],
    'steps': int(steps[-1]) if steps else 0,
    'saved': int(saved[0]) if saved else None,
    'newest': max(whole, default=None),
  }


def is_good(row: dict) -> bool:
  """Whether a run ended as it should."""
  return (
    row['ended']
    and not row['left']
    and row['exit_code'] == 130
    and not row['trace']
    and row['last_line'] == 'vit_jax.main: interrupted.'
    and row['newest'] == row['saved']
    and (row['saved'] or 0) >= row['steps']
  )


def main(argv: Sequence[str]) -> None:
  del argv
  options, rows = flags.FLAGS, []
  # Background jobs of shells ignore Ctrl-C.
  signal.signal(signal.SIGINT, signal.default_int_handler)
  with tempfile.TemporaryDirectory() as name, load(options.load):
    root = pathlib.Path(name)
    kills.make_folder(root / 'images')
    for number in range(options.first, options.first + options.count):
      row = interrupt_once(root / 'images', root, number)
      rows.append({'good': is_good(row), **row})
      print(number + 1, json.dumps(rows[-1]), flush=True)
      if not rows[-1]['good']:
        print((root / f'{number}.log').read_text()[-4000:], flush=True)
  slowest = max(rows, key=lambda row: row['seconds_until_workers_are_gone'])
  result = {
    'interrupts': len(rows),
    'good': sum(row['good'] for row in rows),
    'within_10_s': sum(
      row['seconds_until_workers_are_gone'] <= 10 for row in rows
    ),
    'slowest': slowest,
    'by_moment': collections.Counter(row['moment'] for row in rows),
    'by_workers': collections.Counter(row['workers'] for row in rows),
    'load': options.load,
    'processors': os.cpu_count(),
    'rows': rows,
  }
  pathlib.Path(options.output).write_text(json.dumps(result, indent=1) + '\n')
  print({k: v for k, v in result.items() if k != 'rows'})


if __name__ == '__main__':
  flags.DEFINE_integer('count', 200, 'How often.')
  flags.DEFINE_integer('first', 0, 'Number of the first; seeds of its moment.')
  flags.DEFINE_integer('load', 2, 'Busy processes beside it.')
  flags.DEFINE_string('output', None, 'JSON file.', required=True)
  app.run(main)
