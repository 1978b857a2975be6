"""Trains a tiny model over meshes of eight devices, for test_sharding.py."""

import importlib.util
import json
import pathlib
import sys

import jax

from vit_jax import train as train_lib

MESHES = {
  'data': {'data': 8},
  'fsdp': {'data': 4, 'fsdp': 2},
  'model': {'data': 2, 'fsdp': 2, 'model': 2},
}


def tiny(folder):
  """Returns the config of tests/run_files/tiny.py, without `runs`, which needs more."""
  path = pathlib.Path(__file__).with_name('run_files') / 'tiny.py'
  spec = importlib.util.spec_from_file_location('tiny', path)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module.get_config(str(folder))


def train(folder, workdir, **mesh):
  """Trains for five steps on all devices; returns the last state."""
  config = tiny(folder)
  config.batch = 16
  config.total_steps = 5
  config.progress_every = 1
  config.checkpoint_every = 0  # None is looked at, and they take long.
  config.optimizer = 'sgd'
  config.base_lr = 0.1
  config.pp.update(  # Whatever is random must be the same too.
    augmentation='light2',
    cutmix=1.0,
    color_jitter=(0.4, 0.4, 0.4, 0.1),
    random_erasing=0.2,
  )
  config.mesh.update(mesh)
  pathlib.Path(workdir).mkdir()
  return train_lib.train_and_evaluate(config, str(workdir))


def held(tree):
  """Returns the bytes of arrays on the first device."""
  return sum(x.addressable_data(0).nbytes for x in jax.tree.leaves(tree))


def main(folder, root, *names):
  bytes_on_device = {}
  for name in names:
    state = train(folder, pathlib.Path(root) / name, **MESHES[name])
    bytes_on_device[name] = {
      'params': held(state.params),
      'opt_state': held(state.opt_state),
    }
  print(json.dumps(bytes_on_device))


if __name__ == '__main__':
  main(*sys.argv[1:])
