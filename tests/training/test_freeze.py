"""Frozen parameters, moving averages, and the gradients of SAM."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from vit_jax import models
from vit_jax.models import blocks
from vit_jax.runtime import errors
from vit_jax.training import freeze
from vit_jax.training import optimizers
from vit_jax.training import state as state_lib
from vit_jax.training import update

MODEL = models.get_model('testing', num_classes=3)
HEAD_ONLY = (r'(?!head/)',)


@functools.cache
def initial():
  return models.init_params(MODEL, (32, 32, 3))


def test_join_undoes_split():
  trained, frozen = freeze.split(
    initial(), (r'Transformer/encoder', 'embedding')
  )
  assert {*trained} == {'cls', 'head', 'Transformer'}
  assert {*trained['Transformer']} == {'posembed_input'}
  assert 'encoder_norm' in frozen['Transformer']
  joined = freeze.join(trained, frozen)
  assert jax.tree.structure(joined) == jax.tree.structure(initial())
  assert freeze.split(initial(), ()) == (initial(), {})


def two_blocks():
  encoder = initial()['Transformer']
  block = encoder['encoderblock_0']
  encoder = {**encoder, 'encoderblock_0': block, 'encoderblock_1': block}
  return {**initial(), 'Transformer': encoder}


@pytest.mark.parametrize(
  'patterns',
  [
    (r'Transformer/encoderblock_\d+/MlpBlock', 'cls'),
    ('Transformer/encoderblock_0/', 'Transformer/encoderblock_1/'),
    HEAD_ONLY,
  ],
)
def test_patterns_match_stacked_and_unstacked_blocks_alike(patterns):
  params = two_blocks()
  want = [blocks.stack(part) for part in freeze.split(params, patterns)]
  got = freeze.split(blocks.stack(params), patterns)
  for a, b in zip(got, want, strict=True):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    assert jax.tree.all(jax.tree.map(np.array_equal, a, b))


def test_refuses_to_freeze_part_of_a_stacked_array():
  patterns = ('Transformer/encoderblock_0/',)
  assert freeze.split(two_blocks(), patterns)[1]
  with pytest.raises(errors.UserError, match='1 of the 2 blocks of Tr.*scan_'):
    freeze.split(blocks.stack(two_blocks()), patterns)


@pytest.mark.parametrize(
  'patterns, message',
  [
    (
      ('hed/',),
      r"'hed/', which matches no parameter. Some names: T",
    ),
    (('',), 'leaves nothing to train'),
  ],
)
def test_refuses_wrong_patterns(patterns, message):
  with pytest.raises(errors.UserError, match=message):
    freeze.split(initial(), patterns)


def steps(count, **how):
  tx = optimizers.create_optimizer(lambda _: 0.1)
  trained, _ = freeze.split(initial(), how.get('freeze', ()))
  ema = initial() if 'ema_decay' in how else ()
  state = state_lib.TrainState(jnp.array(0), initial(), tx.init(trained), ema)
  step = jax.jit(
    functools.partial(
      update.train_step,
      loss_fn=update.make_loss_fn(MODEL, lambda key, images: images),
      tx=tx,
      **how,
    )
  )
  rng = np.random.RandomState(0)
  batch = {
    'image': jnp.asarray(rng.normal(size=(4, 32, 32, 3)), jnp.float32),
    'label': jnp.array([0, 1, 2, 0]),
  }
  states = [state]
  program = step.lower(state, batch, jax.random.key(0)).compile()
  for _ in range(count):
    states.append(program(states[-1], batch, jax.random.key(0))[0])
  return states, program


def test_frozen_parameters_need_no_memory_or_backward_pass():
  states, program = steps(3, freeze=HEAD_ONLY)
  for name, x in states[-1].params.items():
    same = jax.tree.map(lambda a, b: bool((a == b).all()), x, initial()[name])
    assert all(jax.tree.leaves(same)) == (name != 'head')
  sizes = [x.size for x in jax.tree.leaves(states[-1].opt_state)]
  assert sum(sizes) < 2 * sum(
    x.size for x in jax.tree.leaves(initial()['head'])
  )
  _, whole = steps(1)
  flops = [p.cost_analysis()['flops'] for p in (program, whole)]
  assert flops[0] < 0.45 * flops[1]


def test_averages_trained_and_frozen_parameters():
  states, _ = steps(3, ema_decay=0.5)
  want = initial()
  for t, state in enumerate(states[1:]):
    decay = min(0.5, (1 + t) / (10 + t))
    want = jax.tree.map(
      lambda e, p, d=decay: d * e + (1 - d) * p, want, state.params
    )
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6),
    states[-1].ema,
    want,
  )
  assert optax.tree.norm(optax.tree.sub(want, states[-1].params)) > 0.01


def test_sam_step_computes_two_gradients():
  tx = optimizers.create_optimizer(lambda _: 0.1, sam_rho=0.05)
  state = state_lib.TrainState(jnp.array(0), initial(), tx.init(initial()))
  points = []

  def loss_fn(params, batch, key):
    points.append(params['head']['bias'])
    return jnp.sum(params['head']['bias'] ** 2 + params['head']['bias'])

  update.train_step(state, {}, jax.random.key(0), loss_fn=loss_fn, tx=tx)
  assert len(points) == 2
