"""Matrix products by oneDNN, which XLA's CPU backend has but does not use by itself."""

from collections.abc import Mapping
import contextlib
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys

from absl import logging
from packaging import version
import platformdirs

from vit_jax.runtime import exits
from vit_jax.runtime import files
from vit_jax.runtime import processor

# '1' multiplies by oneDNN, '0' does not; otherwise the faster one is measured.
VARIABLE = 'VIT_JAX_ONEDNN'

# YNNPACK would take the products, too; sums without it are up to 30 times slower.
_FLAGS = (
  '--xla_cpu_experimental_onednn_custom_call=true',
  '--xla_cpu_experimental_ynn_fusion_type=reduce',
)
_XLA_FLAGS = 'XLA_FLAGS'
_FIRST = version.Version('0.12')  # Earlier jaxlibs multiply in float32.
_UNITS = {'amx_bf16', 'avx512_bf16'}
_FASTER = 1.15  # Less is not worth another rounding.

# One MLP kernel of B/16 and 4 images; prints GFLOP/s of the best of some products.
_PROBE = """
import sys, time
import jax, jax.numpy as jnp
x, w = jnp.ones((788, 768), 'bfloat16'), jnp.ones((768, 3072), 'bfloat16')
product = jax.jit(lambda x, w: jnp.matmul(x, w, preferred_element_type=sys.argv[1]))
product(x, w).block_until_ready()
best = 1e9
for _ in range(20):
  start = time.perf_counter()
  product(x, w).block_until_ready()
  best = min(best, time.perf_counter() - start)
print(2e-9 * x.size * w.shape[1] / best)
"""


def use() -> None:
  """Lets XLA multiply by oneDNN in this process, if that is faster here.

  Call it before JAX is imported. Does nothing with accelerators, an older jaxlib, or a
  processor without bfloat16 products.
  """
  choice = os.environ.get(VARIABLE, '')
  if choice == '0' or is_used() or 'jax' in sys.modules or not is_possible():
    return
  if choice == '1' or _is_faster():
    os.environ |= environment(uses=True)


def is_used() -> bool:
  """Whether the flags of XLA in this process are those of oneDNN."""
  return set(_FLAGS) <= set(os.environ.get(_XLA_FLAGS, '').split())


def products() -> str:
  """Returns what `config.cpu_products` is in this process."""
  return 'onednn' if is_used() else 'xla'


def restart(wanted: str) -> None:
  """Starts this command again if it must multiply otherwise, and can.

  `wanted` is a value of `config.cpu_products`.
  """
  if wanted not in ('auto', products()) and is_possible():
    exits.restart(environment(wanted == 'onednn'))


def is_possible() -> bool:
  """Whether oneDNN can multiply bfloat16 matrices here."""
  jaxlib = version.Version(importlib.metadata.version('jaxlib'))
  return (
    jaxlib >= _FIRST
    and bool(_UNITS & processor.units())
    and processor.is_alone()
  )


def environment(uses: bool) -> dict[str, str]:
  """Returns the variables of a process that multiplies by oneDNN, or does not."""
  variables = dict(os.environ)
  words = variables.get(_XLA_FLAGS, '').split()
  words = [word for word in words if word not in _FLAGS]
  variables[_XLA_FLAGS] = ' '.join([*words, *(_FLAGS if uses else ())])
  variables[VARIABLE] = str(int(uses))
  return variables


def _is_faster() -> bool:
  """Measures both kinds of products once for this machine and jaxlib."""
  jaxlib = importlib.metadata.version('jaxlib')
  folder = platformdirs.user_cache_path('vit_jax')
  path = folder / f'onednn-{processor.fingerprint()}-{jaxlib}.json'
  try:
    speeds = json.loads(path.read_text(encoding='utf-8'))
  except (OSError, ValueError):
    speeds = {name: _speed(name == 'onednn') for name in ('xla', 'onednn')}
    logging.info('bfloat16 products, GFLOP/s: %s', speeds)
    _remember(speeds, path)
  return speeds['onednn'] > _FASTER * speeds['xla']


def _speed(by_onednn: bool) -> float:
  """Returns GFLOP/s of a product, in a process of its own; 0 if it fails."""
  result = 'bfloat16' if by_onednn else 'float32'
  found = subprocess.run(
    [sys.executable, '-c', _PROBE, result],
    env=environment(by_onednn) | {'JAX_PLATFORMS': 'cpu'},
    capture_output=True,
    check=False,
    text=True,
  )
  return 0.0 if found.returncode else float(found.stdout)


def _remember(speeds: Mapping[str, float], path: pathlib.Path) -> None:
  with contextlib.suppress(OSError):  # Then it is measured again next time.
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_json(speeds, path)
