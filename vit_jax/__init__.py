"""Vision Transformers in JAX and Flax."""

import importlib
from typing import Any

__version__ = '0.1.0'


def __getattr__(name: str) -> Any:
  """Gives `load`; imported only then, as nothing else of it is needed often."""
  if name == 'load':
    return importlib.import_module('vit_jax.predictor').load
  raise AttributeError(f'The module vit_jax has no attribute {name!r}.')
