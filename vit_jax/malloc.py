"""Keeps memory that one step has freed for the next one, on CPUs."""

import ctypes
import importlib.metadata
import importlib.util

import jax

# Of mallopt(3).
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8


def keep_freed() -> bool:
  """Makes the allocator of this process return no memory to the system.

  XLA allocates the activations of a step anew each time. The system takes them
  back after the step and clears every page when the next one touches it: a third
  of the time of small models. Threads that have allocated before are not
  affected, so call it before JAX starts its devices.

  Returns:
    Whether it did: there are no accelerators, and the allocator is glibc's.
  """
  mallopt = getattr(ctypes.CDLL(None), 'mallopt', None)
  if mallopt is None or not _only_cpu():
    return False
  mallopt(_MMAP_MAX, 0)  # All from the heap,
  mallopt(_TRIM_THRESHOLD, -1)  # which never shrinks,
  mallopt(_ARENA_MAX, 1)  # and only the first one of which may be that large.
  return True


def _only_cpu() -> bool:
  """Whether JAX will find no accelerator, without starting its devices."""
  if platforms := jax.config.jax_platforms:
    return platforms == 'cpu'
  plugins = importlib.metadata.entry_points(group='jax_plugins')
  modules = ('jax_plugins', 'libtpu')
  return not plugins and not any(map(importlib.util.find_spec, modules))
