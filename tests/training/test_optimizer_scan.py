"""Optimizers see one block at a time, whether blocks are stacked or not."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from vit_jax.configs import common
from vit_jax.models import blocks
from vit_jax.training import optimizers
from vit_jax.training import per_block

STEPS = 5


def make_params(depth):
  """Returns unrolled parameters; a block is 100 or 10^4 times its neighbours."""
  rng = np.random.RandomState(0)

  def layer(scale):
    return {
      'kernel': jnp.float32(scale * rng.normal(size=(40, 48))),
      'bias': jnp.float32(scale * rng.normal(size=48)),
    }

  encoder = {
    f'encoderblock_{i}': {'Dense_0': layer(100.0 ** -(i % 3))}
    for i in range(depth)
  }
  head = jax.tree.map(jnp.zeros_like, layer(1.0))
  return {'Transformer': encoder, 'embedding': layer(1.0), 'head': head}


def train(scan, depth, schedule, **how):
  """Returns unrolled parameters after steps along random gradients."""
  rng = np.random.RandomState(1)
  grads = [
    jax.tree.map(
      lambda x: jnp.float32((jnp.abs(x).max() + 1) * rng.normal(size=x.shape)),
      make_params(depth),
    )
    for _ in range(STEPS)
  ]
  as_stored = blocks.stack if scan else lambda tree: tree
  params = as_stored(make_params(depth))
  tx = optimizers.create_optimizer(
    schedule,
    weight_decay=0.1,
    layer_scales=optimizers.layer_scales(params, 0.7),
    **how,
  )
  state = tx.init(params)
  for step in range(STEPS):
    # The gradient of a random linear loss plus a square of each parameter.
    grad_fn = lambda p, _, g=grads[step]: jax.tree.map(
      lambda x, y: 0.1 * x + y, p, as_stored(g)
    )
    extra = {'grad_fn': grad_fn} if how.get('sam_rho') else {}
    updates, state = tx.update(grad_fn(params, 0), state, params, **extra)
    params = optax.apply_updates(params, updates)
  return blocks.unstack(params)


# Adafactor factors axes of 32 or more; it must not factor the depth.
DEEP = ('linear', 'adafactor')


@pytest.mark.parametrize(
  'decay_type, optimizer',
  [
    pytest.param(*pair, marks=[pytest.mark.slow] * (pair == DEEP))
    for pair in itertools.product(
      common.RULES['decay_type'].choices, common.RULES['optimizer'].choices
    )
  ],
)
def test_optimizers_treat_scanned_and_unrolled_blocks_alike(
  optimizer, decay_type
):
  schedule = optimizers.create_learning_rate_schedule(
    STEPS, 0.1, decay_type, 2, cooldown_steps=1
  )
  # Cycles through the kinds, so that each meets some schedule.
  index = common.RULES['decay_type'].choices.index(decay_type)
  how = {
    'optimizer': optimizer,
    'optim_dtype': ('float32', 'bfloat16')[index % 2],
    'weight_decay_on': ('kernels', 'all')[index // 2],
    'sam_rho': (0.0, 0.05, 0.05, 0.0)[index],
  }
  depth = 33 if (decay_type, optimizer) == DEEP else 3
  want, got = (train(scan, depth, schedule, **how) for scan in (False, True))

  def check(path, a, b):
    assert np.abs(a - b).max() < 1e-5 * np.abs(b).max(), path

  jax.tree_util.tree_map_with_path(check, got, want)


@pytest.mark.parametrize('optimizer', common.RULES['optimizer'].choices)
def test_program_does_not_grow_with_depth(optimizer):
  def program(depth):
    params = blocks.stack(make_params(depth))
    tx = optimizers.create_optimizer(lambda _: 0.1, optimizer=optimizer)
    update = jax.jit(tx.update).lower(params, tx.init(params), params)
    return len(update.as_text().splitlines())

  assert program(2) == program(6)


def test_per_block_refuses_clipping_by_global_norm():
  clip = per_block.apply(optax.clip_by_global_norm(1.0))
  params = blocks.stack(make_params(3))
  with pytest.raises(ValueError, match='out_axes'):
    clip.update(params, clip.init(params), params)
