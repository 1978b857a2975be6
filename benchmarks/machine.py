"""What a benchmark ran on: device, processor, threads, memory pages, load, versions."""

from collections.abc import Sequence
import importlib.metadata
import os
import platform
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp

from vit_jax.models import flops
from vit_jax.runtime import onednn
from vit_jax.runtime import processor

PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'torch', 'timm', 'transformers')

# Instructions that multiply numbers of few bits, as Linux names them.
_UNITS = ('amx_bf16', 'amx_int8', 'avx512_bf16', 'avx512_vnni', 'avx_vnni')


def describe(packages: Sequence[str] = PACKAGES) -> dict[str, Any]:
  """Returns the machine as it is now, and the versions of packages."""
  versions = {}
  for name in packages:
    try:
      versions[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
      continue
  return {
    'device': jax.devices()[0].device_kind,
    'processor': processor.name(),
    'units': [name for name in _UNITS if name in processor.units()],
    'onednn': onednn.is_used(),
    'threads': len(os.sched_getaffinity(0)),
    'huge_pages': 'hugetlb' in os.environ.get('GLIBC_TUNABLES', ''),
    'load': round(os.getloadavg()[0], 1),
    'python': platform.python_version(),
    'versions': versions,
  }


def peak_gib() -> float | None:
  """Returns the peak memory of the device in this process."""
  stats = jax.devices()[0].memory_stats() or {}
  peak = stats.get('peak_bytes_in_use')
  return peak / 2**30 if peak else None


def peak_flops(dtype: str, size: int = 4096) -> float:
  """Returns the peak FLOP/s of the device: published, or of a large product."""
  if published := flops.peak_flops(jax.devices()):
    return published
  x = jnp.ones((size, size), dtype)
  product = jax.jit(lambda x: jnp.dot(x, x, preferred_element_type=jnp.float32))
  jax.block_until_ready(product(x))
  times = []
  for _ in range(5):
    start = time.perf_counter()
    jax.block_until_ready(product(x))
    times.append(time.perf_counter() - start)
  return 2 * size**3 / statistics.median(times)
