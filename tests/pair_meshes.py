"""Trains golden pairs and a DINOv2 over meshes of eight devices and over one.

A program, for test_pair_meshes.py: it prints what `compare` returns as JSON.
"""

import json
import sys

from golden_files import GOLDEN
import jax
import numpy as np
from runs import run_file

from vit_jax.data import batching
from vit_jax.planning import compilation
from vit_jax.runtime import sharding
from vit_jax.training import resolve
from vit_jax.training import tasks

MESHES = {'data': (8, 1, 1), 'all': (2, 2, 2)}
RUN_FILES = {
  'clip': 'configs/clip_folder.py',
  'siglip': 'configs/siglip_folder.py',
  'hf_dinov2': 'configs/folder.py',
}


def settings(name):
  config = run_file(RUN_FILES[name]).get_config(f'{GOLDEN / name},nowhere')
  config.update(batch=8, batch_eval=8, accum_steps=1, warmup_steps=0)
  config.update(optimizer='sgd', base_lr=0.1, scan_layers=True)
  config.pp.update(flip=False, crop_area=(1.0, 1.0))
  return config


def trained(name, mesh):
  """Returns (parameters at the start, state after three steps) on random images."""
  splits = lambda config: compilation.open_splits(config, num_classes=8)
  run = resolve.resolve(settings(name), mesh, open_splits=splits, measure=False)
  data = batching.of_config(run.config, run.splits)
  stage = (task := tasks.make(run, data)).stages[0]
  start = task.initial_params(run.weights)
  state = stage.new_state(start)
  rng, key = np.random.default_rng(0), jax.random.key(0)
  for _ in range(3):
    batch = {
      k: rng.integers(0, 8 if k == 'label' else 30, x.shape).astype(x.dtype)
      for k, x in compilation.batch(run, data).items()
    }
    batch['image'] *= 8
    batch = jax.device_put(batch, sharding.batch_sharding(mesh))
    state, _ = stage.step(state, batch, key)
  return start, state


def distance(tree, other):
  """Returns the largest difference between the arrays of two trees."""
  far = jax.tree.map(
    lambda x, y: float(np.abs(np.asarray(x) - np.asarray(y)).max()), tree, other
  )
  return max(jax.tree.leaves(far))


def held(tree):
  """Returns the share of the bytes of arrays on the first device."""
  leaves = jax.tree.leaves(tree)
  part = sum(x.addressable_data(0).nbytes for x in leaves)
  return part / sum(x.nbytes for x in leaves)


def compare(name, meshes):
  """Returns differences from one device, and shares of bytes on one device.

  Differences are relative to the largest change that training makes.
  """
  start, one = trained(name, sharding.make_mesh(devices=jax.devices()[:1]))
  change = distance(start, one.params)
  found = {}
  for kind in meshes:
    _, state = trained(name, sharding.make_mesh(*MESHES[kind]))
    parts = {'all': state.params, 'optimizer': state.opt_state}
    if 'txt' in state.params:
      parts['texts'] = state.params['txt']['Embed_0']
    shares = {part: held(tree) for part, tree in parts.items()}
    found[kind] = {'far': distance(state.params, one.params) / change, **shares}
  return found


if __name__ == '__main__':
  kinds = sys.argv[1].split(',')
  print(json.dumps({name: compare(name, kinds) for name in RUN_FILES}))
