"""Measures an accelerator: ceilings, attention, models, choices, whole runs.

python -m benchmarks.accelerator --part=1,2,3,4 --minutes=30 --output=/tmp/h100

writes /tmp/h100.json and /tmp/h100.md, and ends in time. The same command continues with
what is missing. Parts: 1 large products and copies, attention; 2 models, training
and inference; 3 timm where it is installed, precision, flags of XLA; 4 runs from JPEG
files (--images=FOLDER, or made ones), killed and resumed, traced. --short measures ViT-B/16
alone; --tiny rehearses everything on a CPU. Jobs run one after the other, in processes
of their own.
"""

from collections.abc import Callable, Sequence
import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
from typing import Any

from absl import app
from absl import flags

from benchmarks import accelerator_jobs as jobs_lib
from benchmarks import accelerator_table

_ROOT = pathlib.Path(__file__).parents[1]
_KINDS = [sys.executable, '-m', 'benchmarks.accelerator_kinds']

# Kinds whose jobs share a process: the device keeps its memory between them.
_TOGETHER = ('machine', 'product', 'copy', 'attention')

_LEAST = 20.0  # Seconds that a process needs to be worth its start.


def measure(
  parts: Sequence[int],
  sizes: jobs_lib.Sizes,
  path: pathlib.Path,
  seconds: float,
  images: str = '',
  command: Sequence[str] = tuple(_KINDS),
) -> list[jobs_lib.Job]:
  """Measures what is missing in a JSON file; returns the jobs for which time was too short.

  Args:
    parts: numbers of parts.
    sizes: what to measure.
    path: JSON file of results by job, read first if it is there.
    seconds: the most that it may take.
    images: folder of photographs.
    command: program that runs jobs, see `accelerator_kinds`.
  """
  end = time.monotonic() + seconds
  results = json.loads(path.read_text()) if path.exists() else {}

  def keep(name: str, row: dict[str, Any]) -> None:
    results[name] = row
    temporary = path.with_suffix('.new')
    temporary.write_text(json.dumps(results, indent=1) + '\n')
    temporary.replace(path)

  for part in parts:
    while jobs := jobs_lib.missing(part, sizes, results, images):
      left = end - time.monotonic()
      if left < min(_LEAST, seconds / 2):
        return jobs
      run(_one_process(jobs), command, left, keep)
  return []


def _one_process(jobs: Sequence[jobs_lib.Job]) -> list[jobs_lib.Job]:
  """Returns the first job, with those after it that share its process."""
  first, *_ = jobs
  if first.kind not in _TOGETHER:
    return [first]
  together = lambda job: job.kind in _TOGETHER
  return list(itertools.takewhile(together, jobs))


def run(
  jobs: Sequence[jobs_lib.Job],
  command: Sequence[str],
  seconds: float,
  keep: Callable[[str, dict[str, Any]], None],
) -> None:
  """Runs jobs in a process until it ends or its time is over; keeps their rows.

  A job that ends its process has an error as its row; one that is stopped for lack of
  time has none.
  """
  asked = [{**dataclasses.asdict(job), 'name': job.name} for job in jobs]
  xla = f'{os.environ.get("XLA_FLAGS", "")} {jobs[0].flags}'.strip()
  process = subprocess.Popen(
    [*command, json.dumps(asked)],
    cwd=_ROOT,
    env=os.environ | {'XLA_FLAGS': xla},
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    start_new_session=True,
  )
  in_time = threading.Event()
  watch = threading.Timer(seconds, lambda: (in_time.set(), _stop(process)))
  watch.start()
  errors: list[str] = []
  reader = threading.Thread(target=lambda: errors.extend(process.stderr or ()))
  reader.start()
  running = jobs[0].name
  assert process.stdout is not None
  for line in process.stdout:
    if not line.startswith('{'):
      continue
    said = json.loads(line)
    running = said.get('begun', '')
    if 'row' in said:
      print(said['name'], json.dumps(said['row']), flush=True)
      keep(said['name'], said['row'])
  process.wait()
  watch.cancel()
  reader.join()
  if running and not in_time.is_set():
    last = errors[-1].strip()[:300] if errors else ''
    text = f'its process ended with {process.returncode}: {last}'
    print(running, text, flush=True)
    keep(running, {'error': text})


def _stop(process: subprocess.Popen) -> None:
  """Ends a process and those that it started."""
  with contextlib.suppress(ProcessLookupError):
    os.killpg(process.pid, 9)


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'Unexpected arguments: {argv[1:]}')
  options = flags.FLAGS
  path = pathlib.Path(options.output).with_suffix('.json')
  sizes = jobs_lib.SHORT if options.short else jobs_lib.FULL
  if options.tiny:
    sizes = jobs_lib.TINY
  left = measure(
    [int(part) for part in options.part],
    sizes,
    path,
    60 * options.minutes,
    options.images,
  )
  if path.exists():
    results = json.loads(path.read_text())
    path.with_suffix('.md').write_text(accelerator_table.markdown(results))
  if left:
    print(f'{len(left)} jobs of part {left[0].part} are left: run it again.')


if __name__ == '__main__':
  flags.DEFINE_list('part', ['1', '2', '3', '4'], 'Parts to measure.')
  flags.DEFINE_float('minutes', 8.0, 'The most that it may take.')
  flags.DEFINE_string('output', 'accelerator', 'Results, without suffix.')
  flags.DEFINE_string('images', '', 'Folder of photographs, for part 4.')
  flags.DEFINE_bool('short', False, 'Whether to measure the main model alone.')
  flags.DEFINE_bool('tiny', False, 'Whether to rehearse with tiny sizes.')
  app.run(main)
