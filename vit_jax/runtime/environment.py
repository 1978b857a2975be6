"""Versions and hardware, for the report of a run and for `vit-jax doctor`."""

from collections.abc import Sequence
import importlib.metadata
import os
import pathlib
import platform
import subprocess
import sys
from typing import Any

import jax
from packaging import requirements

import vit_jax

_PACKAGES = (  # They decide about numbers and speed.
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
  """Returns versions, devices and the command, as JSON."""
  devices = jax.devices()
  return {
    'command': command(sys.argv),
    'vit_jax': vit_jax.__version__,
    'commit': _commit(),
    'python': platform.python_version(),
    'system': f'{platform.system()} {platform.machine()}',
    'cpus': os.cpu_count(),
    'hosts': jax.process_count(),
    'devices': f'{len(devices)} x {devices[0].device_kind}',
    'packages': {name: version(name) for name in _PACKAGES},
  }


def command(argv: Sequence[str]) -> list[str]:
  """Returns the words of a command to paste, without the path of its program."""
  if not argv:
    return []
  program, *words = argv
  if program == 'vit_jax.main':
    return ['python', '-m', program, *words]
  if program.startswith('vit-jax '):
    return [*program.split(), *words]
  return [pathlib.PurePath(program).name, *words]


def _commit() -> str | None:
  """Returns the commit of the clone that the package is in; None for a wheel."""
  clone = pathlib.Path(vit_jax.__file__).parents[1]
  if not (clone / '.git').exists():
    return None
  try:
    found = subprocess.run(
      ['git', 'describe', '--always', '--dirty', '--abbrev=12'],
      cwd=clone,
      capture_output=True,
      text=True,
      check=True,
    )
  except (OSError, subprocess.CalledProcessError):
    return None
  return found.stdout.strip()


def version(package: str) -> str | None:
  """Returns the installed version of a package; None if there is none."""
  try:
    return importlib.metadata.version(package)
  except importlib.metadata.PackageNotFoundError:
    return None


def tested() -> dict[str, requirements.Requirement]:
  """Returns the tested versions by package, from setup.py, without extras."""
  lines = importlib.metadata.requires('vit_jax') or []
  found = [requirements.Requirement(line) for line in lines]
  return {r.name: r for r in found if r.marker is None}
