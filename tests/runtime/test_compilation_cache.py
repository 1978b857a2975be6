"""Programs are kept where users keep caches, and found again."""

import os
import re
import subprocess
import sys

from golden_files import REPOSITORY
import pytest

_CODE = """
import jax
from vit_jax.runtime import compilation_cache
hits = []
jax.monitoring.register_event_listener(
  lambda name, **_: hits.append(name) if name.endswith('cache_hits') else None
)
compilation_cache.enable()

@jax.jit
def program(x):  # Compiles long enough to be kept.
  for _ in range(60):
    x = jax.numpy.sin(x @ x)
  return x

program(jax.numpy.ones((2, 2))).block_until_ready()
print(len(hits))
"""


def hits(**environment):
  result = subprocess.run(
    [sys.executable, '-c', _CODE],
    env=os.environ | {'JAX_PLATFORMS': 'cpu'} | environment,
    cwd=REPOSITORY,
    check=True,
    capture_output=True,
    text=True,
  )
  assert not result.stderr
  return int(result.stdout)


@pytest.mark.slow
def test_a_second_process_compiles_nothing_again(tmp_path):
  home = {'XDG_CACHE_HOME': str(tmp_path / 'home')}
  assert hits(**home) == 0
  assert hits(**home) > 0
  (folder,) = (tmp_path / 'home' / 'vit_jax').iterdir()
  assert folder.name.startswith('xla-')
  mine = str(tmp_path / 'mine')
  assert hits(JAX_COMPILATION_CACHE_DIR=mine, **home) == 0
  off = {'JAX_ENABLE_COMPILATION_CACHE': '0'}
  assert hits(JAX_COMPILATION_CACHE_DIR=mine, **off, **home) == 0


_WITHOUT_HOME = """
import io
from vit_jax.commands import cli, doctor
from vit_jax.planning import readiness
from vit_jax.reporting import plot

def main(argv):
  plot._figure(1, 1).savefig(io.BytesIO())
  doctor.show(readiness.examine([readiness.check_disk]))

cli.run(main)
"""


@pytest.mark.slow
def test_without_a_home_commands_warn_of_nothing_but_doctor_does():
  """A path below a file can be made by nobody, not by root either."""
  environment = {
    name: value
    for name, value in os.environ.items()
    if name not in ('XDG_CACHE_HOME', 'XDG_CONFIG_HOME', 'MPLCONFIGDIR')
  }
  home = {'HOME': f'{os.devnull}/home', 'JAX_PLATFORMS': 'cpu'}
  code = f'{_CODE}\n{_WITHOUT_HOME}'
  result = subprocess.run(
    [sys.executable, '-c', code],
    env=environment | home,
    cwd=REPOSITORY,
    check=True,
    capture_output=True,
    text=True,
  )
  assert not result.stderr
  assert result.stdout.startswith('0\nok      this folder')
  assert re.search(
    rf'warning the cache   {os.devnull}/home/.*cannot be made: Not a directory',
    result.stdout,
  )
  assert 'Try: Make room, or set JAX_COMPILATION_CACHE_DIR' in result.stdout
