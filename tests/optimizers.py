"""Trains with every optimizer over meshes of eight devices, for test_optimizer_runs.

Each case goes the way of a run: config, task, stage, jitted step.
"""

import functools
import itertools
import json
import sys
import tempfile

import flax.traverse_util
import jax
import numpy as np

from tests import meshes
from vit_jax.models import blocks
from vit_jax.runtime import sharding
from vit_jax.training import freeze
from vit_jax.training import resolve
from vit_jax.training import state as state_lib
from vit_jax.training import tasks

MESHES = ((1, 1, 1), (8, 1, 1), (2, 2, 2))
FROZEN = (r'(?!Transformer/encoderblock_\d+/|head/)',)


def get_config(folder, optimizer, scan, frozen, ema):
  config = meshes.tiny(folder)
  config.model.hidden_size = 32  # Adafactor factors nothing smaller.
  config.model.transformer.mlp_dim = 64
  config.model.transformer.dropout_rate = 0.0
  config.stochastic_depth_rate = 0.0
  config.optimizer = optimizer
  config.scan_layers = scan
  config.freeze = FROZEN if frozen else ()
  config.ema_decay = 0.9 if ema else 0.0
  config.weight_decay = 0.1
  config.layer_decay = 0.5
  config.base_lr = 0.01
  config.warmup_steps = 0
  config.total_steps = 3
  config.accum_steps = 1
  config.batch = 16
  return config


def batches(size, image_shape, mesh):
  rng = np.random.RandomState(0)
  parts = [
    {
      'image': rng.randint(0, 256, (size, *image_shape)).astype(np.uint8),
      'label': rng.randint(0, 3, size).astype(np.int32),
    }
    for _ in range(3)
  ]
  return sharding.put_batches(parts, mesh, size)


@functools.cache
def run(folder, optimizer, sizes, scan, frozen, ema):
  """Returns the losses of three steps, the first and last parameters."""
  config = get_config(folder, optimizer, scan, frozen, ema)
  devices = jax.devices()[: np.prod(sizes)]
  mesh = sharding.make_mesh(*sizes, devices=devices)
  task = tasks.make(resolve.resolve(config, mesh))
  (stage,) = task.stages
  state = stage.new_state(task.initial_params(None))
  first, losses = named(state.params), []
  for batch in batches(config.batch, task.data.image_shape, mesh):
    state, metrics = stage.step(state, batch, jax.random.key(0))
    losses.append(float(metrics['train_loss']))
  if sizes == MESHES[-1]:
    check_checkpoint(state, stage.like)
  assert bool(state.ema) == ema
  assert jax.tree.map(lambda x: x.sharding, state) == jax.tree.map(
    lambda x: x.sharding, stage.like
  )
  return losses, first, named(state.params)


def check_checkpoint(state, like):
  """Saves a state and checks that it comes back, bit for bit and as sharded."""
  with tempfile.TemporaryDirectory() as folder:
    with state_lib.Saver(folder) as saver:
      saver.save(state)
    with state_lib.Saver(folder) as saver:
      back = saver.restore(like)
  assert jax.tree.structure(back) == jax.tree.structure(state)
  for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(state), strict=True):
    assert a.sharding == b.sharding
    np.testing.assert_array_equal(a, b)


def named(params):
  """Returns arrays by official name, but for what has no gradient but noise."""
  params = blocks.unstack(jax.tree.map(np.array, params))
  flat = flax.traverse_util.flatten_dict(params, sep='/')
  return {name: x for name, x in flat.items() if 'key/bias' not in name}


def compare(folder, optimizer, sizes, scan, frozen, ema):
  """Returns how far a case is from one device that runs block after block."""
  losses, first, last = run(folder, optimizer, sizes, scan, frozen, ema)
  want_losses, _, want = run(folder, optimizer, MESHES[0], False, frozen, False)
  nested = flax.traverse_util.unflatten_dict(last, sep='/')
  _, kept = freeze.split(nested, FROZEN if frozen else ())
  kept = set(flax.traverse_util.flatten_dict(kept, sep='/'))
  still = {name for name in last if np.array_equal(last[name], first[name])}
  return {
    'case': [optimizer, sizes, scan, frozen, ema],
    'loss': max(np.abs(np.subtract(losses, want_losses))),
    'params': max(float(np.abs(last[n] - want[n]).max()) for n in want),
    'wrongly_moved': sorted(kept - still),
    'wrongly_kept': sorted(still - kept),
  }


def main(folder, optimizer):
  """Tries all of (mesh, scanned blocks, frozen parameters, moving average)."""
  for case in itertools.product([optimizer], MESHES, *[(False, True)] * 3):
    print(json.dumps(compare(folder, *case)), flush=True)


if __name__ == '__main__':
  main(*sys.argv[1:])
