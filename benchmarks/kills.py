"""Kills a run repeatedly at random moments, and compares its final weights.

python -m benchmarks.kills --kills=50 --output=results/kills_cpu.json

A run on a folder with asynchronous checkpoints every two steps is killed by SIGKILL
and started again, --kills times; then it may end. Its weights must be those of an
unbroken run, bit for bit, and no start may restore an incomplete checkpoint.
"""

from collections.abc import Sequence
import itertools
import json
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from absl import app
from absl import flags
import cv2
import numpy as np

_ROOT = pathlib.Path(__file__).parents[1]
_STEPS = 100_000  # Too many to end before it is killed.


def make_folder(root: pathlib.Path) -> None:
  """Writes images of noise in three classes."""
  rng = np.random.default_rng(0)
  for split in ('train', 'test'):
    for name in ('a', 'b', 'c'):
      folder = root / split / name
      folder.mkdir(parents=True)
      for i in range(8):
        image = rng.integers(0, 256, (32, 32, 3), np.uint8)
        cv2.imwrite(str(folder / f'{i}.png'), image)


def start_run(
  folder: pathlib.Path, workdir: pathlib.Path, log, *settings: str, **options
):
  """Starts a run of the tiny model, which logs each step to `log`.

  Args:
    folder: images.
    workdir: where the run writes.
    log: open file.
    *settings: overrides of the config, such as 'total_steps=5'.
    **options: arguments of `subprocess.Popen`.
  """
  return subprocess.Popen(
    [
      sys.executable,
      '-m',
      'vit_jax.main',
      f'--config=tests/run_files/tiny.py:{folder}',
      f'--workdir={workdir}',
      '--config.warmup_steps=5',
      '--config.progress_every=1',
      *(f'--config.{setting}' for setting in settings),
    ],
    cwd=_ROOT,
    stdout=log,
    stderr=subprocess.STDOUT,
    **options,
  )


def start(folder: pathlib.Path, workdir: pathlib.Path, steps: int, log):
  """Starts a run with a number of steps."""
  return start_run(
    folder,
    workdir,
    log,
    f'total_steps={steps}',
    'decay_type=constant',
    'checkpoint_every=2',
    'eval_every=7',
  )


def last_step(workdir: pathlib.Path) -> int:
  """Returns the newest step whose metrics are written."""
  path = workdir / 'metrics.jsonl'
  text = path.read_text() if path.exists() else ''
  return int((re.findall(r'"step": (\d+)', text) or ['0'])[-1])


def hits_start(number: int) -> bool:
  """Whether a kill, a fifth of them, hits the start of the run."""
  return number % 5 == 0


def kill_often(
  folder: pathlib.Path, workdir: pathlib.Path, kills: int
) -> list[dict]:
  """Kills a run at random; returns a row about the checkpoints of each kill."""
  rng, rows = random.Random(0), []
  log = workdir.with_suffix('.log')
  for number in range(kills):
    before = last_step(workdir)
    with open(log, 'w', encoding='utf-8') as f:
      process = start(folder, workdir, _STEPS, f)
      if not hits_start(number):  # Waits for another step.
        while last_step(workdir) <= before and process.poll() is None:
          time.sleep(0.005)
      time.sleep(rng.uniform(0, 2.0))
      process.send_signal(signal.SIGKILL)
      process.wait()
    text = log.read_text()
    if process.returncode != -signal.SIGKILL:
      raise RuntimeError(f'The run ended before it was killed:\n{text[-2000:]}')
    restored = re.findall(r'Restored step (\d+)', text)
    names = [p.name for p in (workdir / 'checkpoints').glob('*')]
    rows.append(
      {
        'restored': int(restored[0]) if restored else None,
        'reached': last_step(workdir),
        'whole': sorted(int(n) for n in names if n.isdigit()),
        'half_written': sum(not n.isdigit() for n in names),
      }
    )
    print(number + 1, json.dumps(rows[-1]), flush=True)
  return rows


def check(rows: Sequence[dict]) -> None:
  """Raises if a start did not resume from the newest complete checkpoint."""
  for number, (before, after) in enumerate(itertools.pairwise(rows), start=1):
    want = max(before['whole'], default=None)
    # Who is killed while starting may not have restored yet.
    starting = hits_start(number) and after['restored'] is None
    if after['restored'] != want and not starting:
      raise RuntimeError(
        f'{after} resumed from another step than the newest of {before}.'
      )


def main(argv: Sequence[str]) -> None:
  del argv
  options, began = flags.FLAGS, time.time()
  with tempfile.TemporaryDirectory() as name:
    root = pathlib.Path(name)
    make_folder(root / 'images')
    killed, whole = root / 'killed', root / 'whole'
    rows = kill_often(root / 'images', killed, options.kills)
    check(rows)
    steps = last_step(killed) + 5
    for workdir in (killed, whole):
      with open(root / 'log', 'w', encoding='utf-8') as f:
        if start(root / 'images', workdir, steps, f).wait():
          raise RuntimeError((root / 'log').read_text()[-2000:])
    with (
      np.load(killed / 'artifact' / 'model.npz') as got,
      np.load(whole / 'artifact' / 'model.npz') as want,
    ):
      equal = all(np.array_equal(got[x], want[x]) for x in want.files)
    shutil.rmtree(killed)
  result = {
    'kills': len(rows),
    'while_starting': sum(map(hits_start, range(len(rows)))),
    'with_half_written_checkpoints': sum(r['half_written'] > 0 for r in rows),
    'steps': steps,
    'same_bits': equal,
    'minutes': round((time.time() - began) / 60, 1),
    'rows': rows,
  }
  pathlib.Path(options.output).write_text(json.dumps(result, indent=1) + '\n')
  print({k: v for k, v in result.items() if k != 'rows'})
  if not equal:
    sys.exit('The weights differ.')


if __name__ == '__main__':
  flags.DEFINE_integer('kills', 50, 'How often.')
  flags.DEFINE_string('output', None, 'JSON file.', required=True)
  app.run(main)
