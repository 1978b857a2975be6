"""The examples in the docstrings of public functions run."""

import doctest
import inspect

import jax.numpy as jnp
import numpy as np
import pytest

import vit_jax
from vit_jax import checkpoint
from vit_jax import configs
from vit_jax import models
from vit_jax import predictor

METHODS = ('predict', 'logits', 'features', 'attention', 'rollout')

PUBLIC = (
  vit_jax.load,
  vit_jax.run_file,
  checkpoint.load,
  checkpoint.read,
  checkpoint.load_pretrained,
  checkpoint.save,
  models.get_model,
)


def run(text, name, names):
  """Runs the examples of a docstring, which there must be."""
  example = doctest.DocTestParser().get_doctest(
    inspect.cleandoc(text), names, name, None, None
  )
  assert example.examples, name
  report = []
  runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
  runner.run(example, out=report.append, clear_globs=False)
  assert not runner.failures, ''.join(report)
  names.update(example.globs)


@pytest.fixture
def names(tmp_path, monkeypatch):
  """What the examples may use, in a folder where they may write."""
  monkeypatch.chdir(tmp_path)
  return {
    'np': np,
    'jnp': jnp,
    'vit_jax': vit_jax,
    'checkpoint': checkpoint,
    'configs': configs,
    'models': models,
  }


@pytest.mark.parametrize('function', PUBLIC, ids=lambda f: f.__qualname__)
def test_functions_have_examples_that_run(function, names):
  run(function.__doc__, function.__qualname__, names)


@pytest.mark.slow
def test_methods_of_a_loaded_model_have_examples_that_run(names):
  run(predictor.Predictor.__doc__, 'Predictor', names)
  for method in METHODS:
    run(getattr(predictor.Predictor, method).__doc__, method, names)
