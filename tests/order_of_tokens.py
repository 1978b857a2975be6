"""Prints what eight devices send each other when tokens get the order of GPUs, and the errors.

For test_sharding.py.
"""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np

from vit_jax import models
from vit_jax.models import arithmetic
from vit_jax.planning import hlo
from vit_jax.runtime import sharding


def main(*meshes):
  """Takes meshes such as '2,2,2': data, fsdp, model."""
  model = models.get_model(
    'ViT-Ti_16',
    num_classes=3,
    hidden_size=32,
    patches={'size': (8, 8)},
    transformer={'num_layers': 2, 'mlp_dim': 64, 'num_heads': 2},
  )
  shape = (16, 16, 3)
  images = np.random.RandomState(0).normal(size=(16, *shape)).astype('float32')
  params = models.init_params(model, shape)
  rng = np.random.RandomState(1)
  params = jax.tree.map(lambda x: x + rng.normal(0, 0.1, x.shape), params)

  def gradients(params, images):
    def total(params):
      rngs = {'dropout': jax.random.key(0)}
      y = model.apply({'params': params}, images, train=True, rngs=rngs)
      return jnp.sum(jnp.sin(y))

    return jax.grad(total)(params)

  found = {}
  for name in meshes:
    mesh = sharding.make_mesh(*map(int, name.split(',')))
    like = sharding.place(mesh, params)
    inputs = (
      jax.tree.map(lambda x, y: jax.device_put(x, y.sharding), params, like),
      jax.device_put(images, sharding.batch_sharding(mesh)),
    )
    results, sent = [], []
    for platform in ('cpu', 'gpu'):
      # Another function each time, or the first one's program is used again.
      step = sharding.in_mesh(mesh, lambda p, x: gradients(p, x))
      with arithmetic.compiling_for(platform):
        compiled = jax.jit(step).lower(*inputs).compile()
      results.append(compiled(*inputs))
      kinds = hlo.collectives(compiled.as_text())
      sent.append({kind: row.bytes for kind, row in kinds.items()})
    errors = jax.tree.map(lambda a, b: np.abs(a - b).max(), *results)
    error = float(max(jax.tree.leaves(errors)))
    found[name] = {'sent': sent, 'error': error}
  print(json.dumps(found))


if __name__ == '__main__':
  main(*sys.argv[1:])
