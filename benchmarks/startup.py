"""Measures how long a program takes to its first training step, cold and warm.

python -m benchmarks.startup --variant=ViT-B_16,ViT-L_16,ViT-H_14 --batch=1

Each case is a process of its own, run twice: with an empty cache of compiled
programs, and with the cache that the first run filled. `compile_s` is the time to compile
the step, `first_step_s` the time from the start of Python to the end of one step.
Parameters and images are random, so no data is needed.
"""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time

from absl import app
from absl import flags

from benchmarks import harness
from benchmarks import machine as machine_lib
from benchmarks import programs

_CASE = flags.DEFINE_string('case', None, 'Set for the processes of the cases.')
_STARTED = flags.DEFINE_float('started', 0.0, 'Internal: start time, in s.')


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'Unexpected arguments: {argv[1:]}')
  if _CASE.value:
    _run(harness.Case(**json.loads(_CASE.value)))
    return
  rows = [row for case in harness.cases() for row in _cold_and_warm(case)]
  harness.report(rows, machine_lib.describe(), flags.FLAGS.json)


def _run(case: harness.Case) -> None:
  """Does one step in this process and prints its times."""
  program = programs.train(case)
  program.run()
  seconds = time.time() - _STARTED.value
  print(json.dumps({'compile_s': program.compile_s, 'first_step_s': seconds}))


def _cold_and_warm(case: harness.Case) -> list[dict]:
  rows = []
  with tempfile.TemporaryDirectory() as folder:
    for cache in ('cold', 'warm'):
      command = [
        sys.executable,
        '-m',
        'benchmarks.startup',
        f'--case={json.dumps(dataclasses.asdict(case))}',
        f'--started={time.time()}',
      ]
      result = subprocess.run(
        command,
        env=os.environ | _cache(folder),
        stdout=subprocess.PIPE,
        check=True,
        text=True,
      )
      numbers = json.loads(result.stdout.splitlines()[-1])
      rows.append({**dataclasses.asdict(case), 'cache': cache, **numbers})
  return rows


def _cache(folder: str) -> dict[str, str]:
  """Returns the settings of `vit_jax.runtime.compilation_cache` as environment."""
  return {
    'JAX_COMPILATION_CACHE_DIR': folder,
    'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0.05',
    'JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES': '-1',
  }


if __name__ == '__main__':
  harness.define_flags()
  app.run(main)
