"""What a run ran on and with, for its report and for `vit-jax doctor`."""

import importlib.metadata
import os
import platform
import sys
from typing import Any

import jax
from packaging import requirements

import vit_jax

# Of those in setup.py, what decides about numbers and speed.
_PACKAGES = (
  'jax',
  'jaxlib',
  'flax',
  'optax',
  'orbax-checkpoint',
  'grain',
  'numpy',
  'opencv-python-headless',
)


def describe() -> dict[str, Any]:
  """Returns versions, devices and the command, as JSON has them."""
  devices = jax.devices()
  return {
    'command': sys.argv,
    'vit_jax': vit_jax.__version__,
    'python': platform.python_version(),
    'system': f'{platform.system()} {platform.machine()}',
    'cpus': os.cpu_count(),
    'hosts': jax.process_count(),
    'devices': f'{len(devices)} x {devices[0].device_kind}',
    'packages': {name: version(name) for name in _PACKAGES},
  }


def version(package: str) -> str | None:
  """Returns which version is installed; None if none is."""
  try:
    return importlib.metadata.version(package)
  except importlib.metadata.PackageNotFoundError:
    return None


def tested() -> dict[str, requirements.Requirement]:
  """Returns the versions that are tested, by package, as setup.py has them.

  Those of extras are left out.
  """
  lines = importlib.metadata.requires('vit_jax') or []
  found = [requirements.Requirement(line) for line in lines]
  return {r.name: r for r in found if r.marker is None}
