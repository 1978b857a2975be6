"""Vision Transformers in JAX and Flax."""

import importlib
from typing import Any

from vit_jax import official

__version__ = '0.1.0'


def __getattr__(name: str) -> Any:
  """Gives `load`; imported only then, as nothing else of it is needed often."""
  if name == 'load':
    return importlib.import_module('vit_jax.predictor').load
  if official.replacement('vit_jax', name):
    # Python replaces the message of an AttributeError here.
    raise ImportError(str(official.missing('vit_jax', name)))
  raise official.missing('vit_jax', name)
