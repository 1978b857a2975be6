"""Vision Transformers in JAX and Flax."""

import importlib
from typing import Any

from vit_jax.runtime import official

__version__ = '0.1.0'


# Public names, imported at their first use.
_PUBLIC = {
  'load': ('vit_jax.predictor', 'load'),
  'run_file': ('vit_jax.configs.run_files', 'load'),
}


def __dir__() -> list[str]:
  return ['__version__', *_PUBLIC]


def __getattr__(name: str) -> Any:
  """Returns a public name; names the replacement of an official one."""
  if name in _PUBLIC:
    module, attribute = _PUBLIC[name]
    return getattr(importlib.import_module(module), attribute)
  if official.replacement('vit_jax', name):
    # Python replaces the message of an AttributeError here.
    raise ImportError(str(official.missing('vit_jax', name)))
  raise official.missing('vit_jax', name)
