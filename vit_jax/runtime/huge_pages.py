"""Huge memory pages for XLA on CPUs."""

import ctypes
import os
import pathlib

from vit_jax.runtime import exits
from vit_jax.runtime import processor

_SETTING = 'GLIBC_TUNABLES'
_TUNABLE = 'glibc.malloc.hugetlb=1'
_KERNEL = '/sys/kernel/mm/transparent_hugepage/enabled'
_GLIBC = (2, 35)  # The first version with this tunable.


def use() -> None:
  """Restarts this process with huge pages, where that helps.

  XLA allocates the activations of each step anew, and the kernel clears each page
  of 4 KiB at its first use: up to half of the time of a step. Pages of 2 MiB take
  a fraction of that. Many systems give them only to programs that ask; glibc asks
  if GLIBC_TUNABLES says so when a process starts.

  Does nothing if that variable is set, on other systems, and on hosts with
  accelerators. Call it before JAX is imported, so that it is imported once.
  """
  if _SETTING in os.environ or not (_kernel_waits() and processor.is_alone()):
    return
  exits.restart(os.environ | {_SETTING: _TUNABLE})


def _kernel_waits() -> bool:
  """Whether the kernel gives huge pages on request, and glibc can ask."""
  version = getattr(ctypes.CDLL(None), 'gnu_get_libc_version', None)
  if version is None:
    return False
  version.restype = ctypes.c_char_p
  try:
    enabled = pathlib.Path(_KERNEL).read_text()
  except OSError:  # A kernel without them.
    return False
  known = tuple(map(int, version().decode().split('.')[:2])) >= _GLIBC
  return known and '[madvise]' in enabled
