"""Optimizers."""

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from vit_jax import models
from vit_jax.configs import common
from vit_jax.training import optimizers


def test_refuses_unknown_names():
  with pytest.raises(ValueError, match="'step', must be one of .*'cosine'"):
    optimizers.create_learning_rate_schedule(10, 0.1, 'step', 0)
  with pytest.raises(ValueError, match="'adam', must be one of .*'adamw'"):
    optimizers.create_optimizer(lambda _: 0.1, optimizer='adam')


PARAMS = {
  'cls': jnp.ones(2),
  'head': {'kernel': jnp.ones((2, 2)), 'bias': jnp.ones(2)},
  'Transformer': {
    'posembed_input': {'pos_embedding': jnp.ones(2)},
    'encoder_norm': {'scale': jnp.ones(2), 'bias': jnp.ones(2)},
    'encoderblock_0': {
      'MlpBlock_0': {
        'Dense_0': {'kernel': jnp.ones((2, 2)), 'bias': jnp.ones(2)},
        'Dense_1': {'lora_a': jnp.ones((2, 1)), 'lora_b': jnp.ones((1, 2))},
      }
    },
  },
}


@pytest.mark.parametrize('optimizer', common.RULES['optimizer'].choices)
@pytest.mark.parametrize('on', ['kernels', 'all'])
def test_weight_decay_follows_mask(optimizer, on):
  tx = optimizers.create_optimizer(
    lambda _: 0.1, optimizer=optimizer, weight_decay=0.5, weight_decay_on=on
  )
  zeros = jax.tree.map(jnp.zeros_like, PARAMS)
  updates, _ = tx.update(zeros, tx.init(PARAMS), PARAMS)
  updates = flax.traverse_util.flatten_dict(updates, sep='/')
  matrices = {name for name, x in updates.items() if x.ndim > 1}
  assert len(matrices) == 4
  decayed = {name for name, x in updates.items() if np.any(x < 0)}
  assert decayed == (matrices if on == 'kernels' else set(updates))


@pytest.mark.parametrize('clip, norm', [(0.5, 0.5), (0.0, 10.0), (20.0, 10.0)])
def test_clips_gradients_by_global_norm(clip, norm):
  tx = optimizers.create_optimizer(lambda _: 1.0, grad_norm_clip=clip)
  grads = {'a': jnp.array([6.0]), 'b': jnp.array([8.0])}
  updates, _ = tx.update(grads, tx.init(grads), grads)
  got = np.hypot(updates['a'][0], updates['b'][0])
  assert got == pytest.approx(norm, rel=1e-2)


@pytest.mark.parametrize('optimizer', common.RULES['optimizer'].choices)
@pytest.mark.parametrize('dtype', ['bfloat16', 'float32'])
def test_momentum_has_optim_dtype(optimizer, dtype):
  tx = optimizers.create_optimizer(
    lambda _: 0.1, optimizer=optimizer, optim_dtype=dtype
  )
  dtypes = {x.dtype for x in jax.tree.leaves(tx.init(PARAMS))}
  assert jnp.dtype(dtype) in dtypes
  assert (jnp.dtype('bfloat16') in dtypes) == (dtype == 'bfloat16')


def run_optimizer(params, grads_fn, steps=3, **how):
  tx = optimizers.create_optimizer(lambda _: 0.1, grad_norm_clip=0.0, **how)
  state = tx.init(params)
  for step in range(steps):
    grads = grads_fn(params, step)
    extra = {'grad_fn': lambda p, _: grads_fn(p, 0)} if 'sam_rho' in how else {}
    updates, state = tx.update(grads, state, params, **extra)
    params = optax.apply_updates(params, updates)
  return params


def random_like(params, seed):
  rng = np.random.RandomState(seed)
  return jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), params)


@pytest.mark.parametrize('name', ['lamb', 'adamw', 'sgd'])
def test_optimizers_equal_optax(name):
  theirs = {
    'lamb': lambda: optax.lamb(0.1, weight_decay=0.2),
    'adamw': lambda: optax.adamw(0.1, weight_decay=0.2),
    'sgd': lambda: optax.chain(
      optax.add_decayed_weights(0.2), optax.sgd(0.1, momentum=0.9)
    ),
  }[name]()
  params = random_like(PARAMS, 0)
  got = run_optimizer(
    params,
    lambda _, step: random_like(PARAMS, step),
    optimizer=name,
    weight_decay=0.2,
    weight_decay_on='all',
    optim_dtype='float32',
  )
  state = theirs.init(params)
  for step in range(3):
    updates, state = theirs.update(random_like(PARAMS, step), state, params)
    params = optax.apply_updates(params, updates)
  # optax.lamb has epsilon 1e-6.
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), got, params
  )


def test_muon_equals_optax():
  """Attention's kernels are matrices there; what is in no block is left to Adam."""
  shapes = {'query': (6, 2, 4), 'out': (2, 4, 6), 'Dense_0': (6, 9)}
  rng = np.random.RandomState(0)

  def draw():
    block = {
      name: {
        'kernel': rng.normal(size=shape),
        'bias': rng.normal(size=shape[-1]),
      }
      for name, shape in shapes.items()
    }
    return {
      'encoderblock_0': block,
      'head': {'kernel': rng.normal(size=(6, 3))},
    }

  def as_matrices(tree):
    block = dict(tree['encoderblock_0'])
    for name, shape in {'query': (6, 8), 'out': (8, 6)}.items():
      block[name] = dict(
        block[name], kernel=block[name]['kernel'].reshape(shape)
      )
    return jax.tree.map(jnp.float32, block), jax.tree.map(
      jnp.float32, tree['head']
    )

  params, *grads = (draw() for _ in range(4))
  got = run_optimizer(
    jax.tree.map(jnp.float32, params),
    lambda _, step: jax.tree.map(jnp.float32, grads[step]),
    optimizer='muon',
    momentum=0.8,
    beta2=0.95,
    weight_decay=0.2,
    weight_decay_on='all',
    optim_dtype='float32',
  )

  muon = optax.contrib.muon(0.1, beta=0.8, consistent_rms=0.2, weight_decay=0.2)
  adamw = optax.adamw(0.1, 0.8, 0.95, weight_decay=0.2)
  labels = {'kernel': 'muon', 'bias': 'adamw'}
  blocks = optax.partition(
    {'muon': muon, 'adamw': adamw}, dict.fromkeys(shapes, labels)
  )
  for index, tx in enumerate((blocks, adamw)):
    want = as_matrices(params)[index]
    state = tx.init(want)
    for grad in grads:
      updates, state = tx.update(as_matrices(grad)[index], state, want)
      want = optax.apply_updates(want, updates)
    jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5),
      as_matrices(got)[index],
      want,
    )


def test_muon_orthogonalises_the_matrices_of_lora():
  """All singular values of such a step are nearly the same; Adam's are not."""
  rng = np.random.RandomState(0)
  draw = lambda: {
    'encoderblock_0': {
      'query': {
        'lora_a': jnp.float32(rng.normal(size=(16, 3))),
        'lora_b': jnp.float32(rng.normal(size=(3, 16))),
      }
    }
  }
  params, gradient = draw(), draw()
  got = run_optimizer(params, lambda *_: gradient, 1, optimizer='muon')
  steps = jax.tree.map(lambda a, b: a - b, got, params)
  for step in jax.tree.leaves(steps):
    values = np.linalg.svd(step, compute_uv=False)
    assert values.max() < 2 * values.min()
    # 0.1 of the rate, 0.2 of Adam's root mean square.
    assert np.sqrt(np.mean(step**2)) == pytest.approx(0.02, rel=0.3)


def test_muon_of_a_head_alone_is_adamw():
  """The first stage of a run may train only the head."""
  params = {'head': PARAMS['head']}
  grads = lambda _, step: random_like(params, step)
  got, want = (
    run_optimizer(params, grads, optimizer=name) for name in ('muon', 'adamw')
  )
  jax.tree.map(np.testing.assert_array_equal, got, want)


def test_adafactor_factors_moments_of_large_kernels():
  tx = optimizers.create_optimizer(lambda _: 0.1, optimizer='adafactor')
  state = tx.init({'kernel': jnp.ones((64, 48))})
  sizes = sorted(x.size for x in jax.tree.leaves(state) if x.dtype == 'float32')
  assert sizes == [1, 48, 64]
  end = run_optimizer(
    {'kernel': jnp.full((64, 48), 3.0)},
    lambda p, _: p,  # Gradient of half the square.
    steps=60,
    optimizer='adafactor',
  )
  assert np.abs(end['kernel']).max() < 0.5


def test_adafactor_equals_scaling_vision_transformers():
  rng = np.random.RandomState(0)
  params = {'kernel': jnp.zeros((40, 32)), 'bias': jnp.zeros(3)}
  # The second step is 100 times as large: clipping of updates would show.
  grads = [
    jax.tree.map(lambda x, s=scale: s * rng.normal(size=x.shape), params)
    for scale in (1, 100, 1, 1)
  ]
  got = run_optimizer(
    jax.tree.map(jnp.float32, params),
    lambda _, step: jax.tree.map(jnp.float32, grads[step]),
    steps=4,
    optimizer='adafactor',
    momentum=0.7,
    beta2=0.5,
    optim_dtype='float32',
  )
  for name, factored in (('kernel', True), ('bias', False)):
    want = m = v = np.zeros(params[name].shape)
    for t, g in enumerate((g[name] for g in grads), start=1):
      beta2 = min(1 - t**-0.8, 0.5)  # 0, 0.43, 0.5, 0.5.
      v = beta2 * v + (1 - beta2) * g**2
      rows, columns = v.mean(-1, keepdims=True), v.mean(0, keepdims=True)
      v_hat = rows * columns / v.mean() if factored else v
      m = 0.7 * m + 0.3 * g / np.sqrt(v_hat)
      want = want - 0.1 * m
    np.testing.assert_allclose(got[name], want, atol=1e-6, err_msg=name)


def test_sam_computes_gradient_at_ascent_point():
  grad = lambda params, _: {'w': 2 * params['w'] ** 3}
  got = run_optimizer(
    {'w': jnp.array([1.0, 0.0])}, grad, steps=1, sam_rho=0.5, momentum=0.0,
    optim_dtype='float32',
  )  # fmt: skip
  np.testing.assert_allclose(got['w'], [1 - 0.1 * 2 * 1.5**3, 0], rtol=1e-5)


def test_sam_changes_nothing_where_all_gradients_are_zero():
  """As of a batch whose images all have the weight 0."""
  zero = lambda params, _: jax.tree.map(jnp.zeros_like, params)
  got = run_optimizer({'w': jnp.array([1.0])}, zero, steps=2, sam_rho=0.5)
  np.testing.assert_array_equal(got['w'], [1.0])


def test_layer_decay_scales_updates_after_clipping():
  params = models.init_params(models.get_model('testing', num_classes=3),
                              (32, 32, 3))  # fmt: skip
  ones = lambda p, _: jax.tree.map(jnp.ones_like, p)
  how = {'steps': 1, 'optim_dtype': 'float32'}
  plain = run_optimizer(params, ones, **how)
  scales = optimizers.layer_scales(params, 0.5)
  slow = run_optimizer(params, ones, layer_scales=scales, **how)
  moved = jax.tree.map(lambda a, b: jnp.max(jnp.abs(a - b)), plain, params)
  moved_slow = jax.tree.map(lambda a, b: jnp.max(jnp.abs(a - b)), slow, params)
  jax.tree.map(
    lambda a, b, s: np.testing.assert_allclose(b, a * s, rtol=1e-2, atol=1e-6),
    moved,
    moved_slow,
    scales,
  )


def test_adamw_equals_its_paper():
  tx = optimizers.create_optimizer(
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
