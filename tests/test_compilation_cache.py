"""Programs are kept where users keep caches, and found again."""

import os
import subprocess
import sys

from conftest import REPOSITORY

_CODE = """
import jax
from vit_jax import compilation_cache
hits = []
jax.monitoring.register_event_listener(
  lambda name, **_: hits.append(name) if name.endswith('cache_hits') else None
)
compilation_cache.enable()

@jax.jit
def program(x):  # Long enough not to be left out as quickly compiled.
  for _ in range(300):
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
    stdout=subprocess.PIPE,
    text=True,
  )
  return int(result.stdout)


def test_a_second_process_compiles_nothing_again(tmp_path):
  home = {'XDG_CACHE_HOME': str(tmp_path / 'home')}
  assert hits(**home) == 0
  assert hits(**home) > 0
  (folder,) = (tmp_path / 'home' / 'vit_jax').iterdir()
  assert folder.name.startswith('xla-')
  assert hits(JAX_ENABLE_COMPILATION_CACHE='0', **home) == 0
  assert hits(JAX_COMPILATION_CACHE_DIR=str(tmp_path / 'mine'), **home) == 0
