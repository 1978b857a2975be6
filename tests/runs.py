"""Run files of the tests, and what their runs leave."""

import importlib.util
import json
import pathlib
import types

from golden_files import REPOSITORY
import numpy as np


def arguments(folder, workdir, *overrides, run_file='tiny.py'):
  """Returns what `run` takes to train tests/run_files/tiny.py."""
  return (
    'vit_jax.main',
    f'--config=tests/run_files/{run_file}:{folder}',
    f'--workdir={workdir}',
    *overrides,
  )


def signalled(folder, workdir, number, step, *overrides, process=None):
  """As `arguments`, for a run that sends itself a signal after a step."""
  argument = f'{folder},{number.name},{step}'
  if process is not None:
    argument += f',{process}'
  return arguments(argument, workdir, *overrides, run_file='signalled.py')


def flat(workdir):
  """Returns the arrays of an artifact by their official names."""
  with np.load(workdir / 'artifact' / 'model.npz') as arrays:
    return dict(arrays)


def assert_resumes(config, folder):
  """Checks that a run of 4 steps ends with the same bits if it stops after 2."""
  from vit_jax import train

  config.decay_type = 'constant'
  for steps, name in ((4, 'whole'), (2, 'parts'), (4, 'parts')):
    config.total_steps = steps
    train.train_and_evaluate(config, str(folder / name))
  one, other = flat(folder / 'whole'), flat(folder / 'parts')
  assert one.keys() == other.keys()
  assert all(np.array_equal(one[name], other[name]) for name in other)


def rows(workdir):
  """Returns the lines of metrics.jsonl."""
  lines = (workdir / 'metrics.jsonl').read_text().splitlines()
  return [json.loads(line) for line in lines]


def run_file(path: str) -> types.ModuleType:
  """Returns a run file of the repository, as a module."""
  spec = importlib.util.spec_from_file_location('run_file', REPOSITORY / path)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


def tiny(folder: pathlib.Path):
  """Returns the config of tests/run_files/tiny.py for an image folder."""
  return run_file('tests/run_files/tiny.py').get_config(str(folder))


def tiny_lit(root: pathlib.Path):
  """Returns the config of tests/run_files/tiny_lit.py for `make_caption_folder`."""
  from vit_jax.configs import resolved

  config = run_file('tests/run_files/tiny_lit.py').get_config(str(root))
  config.vocabulary = str(root / 'vocab.txt')
  config.pretrained = str(root / 'vit.npz')
  return resolved.with_defaults(config)
