"""Schedules and optimizers."""

import json

from conftest import golden_json
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax import optim

SCHEDULES = golden_json('learning_rates.json')


@pytest.mark.parametrize('arguments', SCHEDULES)
def test_learning_rates_equal_the_official_ones(arguments):
  schedule = optim.create_learning_rate_schedule(**json.loads(arguments))
  for step, want in SCHEDULES[arguments].items():
    got = schedule(jnp.array(int(step)))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-9, err_msg=step)


def test_unknown_names_are_refused():
  with pytest.raises(ValueError, match="'step', not 'cosine' or 'linear'"):
    optim.create_learning_rate_schedule(10, 0.1, 'step', 0)
  with pytest.raises(ValueError, match="'adam', not 'sgd' or 'adamw'"):
    optim.create_optimizer(lambda _: 0.1, optimizer='adam')


PARAMS = {
  'cls': jnp.ones(2),
  'head': {'kernel': jnp.ones((2, 2)), 'bias': jnp.ones(2)},
  'Transformer': {
    'posembed_input': {'pos_embedding': jnp.ones(2)},
    'encoder_norm': {'scale': jnp.ones(2), 'bias': jnp.ones(2)},
  },
}


@pytest.mark.parametrize('optimizer', ['sgd', 'adamw'])
@pytest.mark.parametrize('on', ['kernels', 'all'])
def test_weight_decay_is_masked(optimizer, on):
  tx = optim.create_optimizer(
    lambda _: 0.1, optimizer=optimizer, weight_decay=0.5, weight_decay_on=on
  )
  zeros = jax.tree.map(jnp.zeros_like, PARAMS)
  updates, _ = tx.update(zeros, tx.init(PARAMS), PARAMS)
  decayed = jax.tree.map(lambda x: bool(np.any(x < 0)), updates)
  assert decayed['head']['kernel']
  others = jax.tree.leaves(decayed)
  assert sum(others) == (1 if on == 'kernels' else len(others))


@pytest.mark.parametrize('clip, norm', [(0.5, 0.5), (0.0, 10.0), (20.0, 10.0)])
def test_gradients_are_clipped_by_their_global_norm(clip, norm):
  tx = optim.create_optimizer(lambda _: 1.0, grad_norm_clip=clip)
  grads = {'a': jnp.array([6.0]), 'b': jnp.array([8.0])}
  updates, _ = tx.update(grads, tx.init(grads), grads)
  got = np.hypot(updates['a'][0], updates['b'][0])
  assert got == pytest.approx(norm, rel=1e-2)


@pytest.mark.parametrize('optimizer', ['sgd', 'adamw'])
@pytest.mark.parametrize('dtype', ['bfloat16', 'float32'])
def test_momentum_is_kept_in_optim_dtype(optimizer, dtype):
  tx = optim.create_optimizer(
    lambda _: 0.1, optimizer=optimizer, optim_dtype=dtype
  )
  dtypes = {x.dtype for x in jax.tree.leaves(tx.init({'a': jnp.ones(3)}))}
  assert jnp.dtype(dtype) in dtypes
  assert (jnp.dtype('bfloat16') in dtypes) == (dtype == 'bfloat16')


def test_adamw_is_that_of_its_paper():
  tx = optim.create_optimizer(
    lambda _: 0.1,
    optimizer='adamw',
    momentum=0.8,
    beta2=0.6,
    optim_dtype='float32',
    grad_norm_clip=0.0,
    weight_decay=0.5,
  )
  params = {'kernel': jnp.array([2.0])}
  state = tx.init(params)
  w, m, v = 2.0, 0.0, 0.0
  for t, g in enumerate((0.3, -1.0, 0.7), start=1):
    updates, state = tx.update({'kernel': jnp.array([g])}, state, params)
    params = {'kernel': params['kernel'] + updates['kernel']}
    m, v = 0.8 * m + 0.2 * g, 0.6 * v + 0.4 * g * g
    m_hat, v_hat = m / (1 - 0.8**t), v / (1 - 0.6**t)
    w -= 0.1 * (m_hat / (np.sqrt(v_hat) + 1e-8) + 0.5 * w)
    assert params['kernel'][0] == pytest.approx(w, rel=1e-5)
