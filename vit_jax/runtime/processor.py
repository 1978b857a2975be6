"""What the processor of this machine can do, without importing JAX."""

import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import pathlib
import platform
import re


def name() -> str:
  """Returns the name that the processor gives itself, as far as the system tells."""
  return _field('model name') or platform.processor() or platform.machine()


def units() -> frozenset[str]:
  """Returns the features of the processor, as Linux names them; else none."""
  return frozenset((_field('flags') or _field('Features')).split())


def fingerprint() -> str:
  """Returns a hash of these features."""
  text = ' '.join(sorted(units())) or name()
  return hashlib.sha256(text.encode()).hexdigest()[:8]


def is_alone() -> bool:
  """Whether JAX will find no accelerator, without starting its devices."""
  if platforms := os.environ.get('JAX_PLATFORMS'):
    return platforms == 'cpu'
  plugins = importlib.metadata.entry_points(group='jax_plugins')
  modules = ('jax_plugins', 'libtpu')
  return not plugins and not any(map(importlib.util.find_spec, modules))


def _field(key: str) -> str:
  found = re.search(rf'^{key}\s*: (.*)$', _about(), re.MULTILINE)
  return found[1] if found else ''


@functools.cache
def _about() -> str:
  try:
    return pathlib.Path('/proc/cpuinfo').read_text(encoding='utf-8')
  except OSError:  # Not on Linux.
    return ''
