"""The training step equals the official code."""

import functools

import flax.traverse_util
from golden_files import GOLDEN
from golden_files import golden_arrays
from golden_files import golden_json
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from run_files import tiny

from vit_jax import checkpoint
from vit_jax import models
from vit_jax.data.augmentation import mixing
from vit_jax.models import losses
from vit_jax.training import optimizers
from vit_jax.training import resolve
from vit_jax.training import state as state_lib
from vit_jax.training import tasks
from vit_jax.training import update

CONFIG = golden_json('index.json')['vit_token']['config']


def golden_batches():
  rng = np.random.RandomState(77)
  images = rng.uniform(-1, 1, (6, 8, 32, 32, 3)).astype(np.float32)
  labels = rng.randint(0, 10, (6, 8)).astype(np.int32)
  return [
    {'image': jnp.array(x), 'label': jnp.array(y)}
    for x, y in zip(images, labels, strict=True)
  ]


def make_step(decay_type='linear', optim_dtype='float32', accum_steps=2):
  transformer = CONFIG['transformer'] | {'dropout_rate': 0.0}
  model = models.VisionTransformer(
    num_classes=10, **CONFIG | {'transformer': transformer}
  )
  schedule = optimizers.create_learning_rate_schedule(6, 0.05, decay_type, 2)
  tx = optimizers.create_optimizer(schedule, optim_dtype=optim_dtype)
  params = jax.tree.map(jnp.array, checkpoint.load(GOLDEN / 'vit_token.npz'))
  state = state_lib.TrainState(
    jnp.zeros((), jnp.int32), params, tx.init(params)
  )
  step = functools.partial(
    update.train_step,
    loss_fn=update.make_loss_fn(model, lambda key, images: images),
    tx=tx,
    accum_steps=accum_steps,
  )
  return jax.jit(step), state


@pytest.mark.parametrize(
  'decay_type, optim_dtype, tolerance',
  [('linear', 'float32', 1e-4), ('cosine', 'bfloat16', 1e-2)],
)
def test_six_steps_equal_official_code(decay_type, optim_dtype, tolerance):
  golden = golden_arrays(f'finetune_6steps_{decay_type}_{optim_dtype}.npz')
  step, state = make_step(decay_type, optim_dtype)
  got = []
  for batch in golden_batches():
    state, values = step(state, batch, jax.random.key(0))
    got.append((values['train_loss'], values['grad_norm']))
  losses, norms = np.transpose(got)
  np.testing.assert_allclose(losses, golden['losses'], rtol=tolerance)
  np.testing.assert_allclose(norms, golden['grad_norms'], rtol=tolerance)
  params = flax.traverse_util.flatten_dict(state.params, sep='/')
  names = [name for name in golden if name.startswith('params/')]
  assert len(names) == 5
  for name in names:
    np.testing.assert_allclose(
      params[name[7:]], golden[name], atol=tolerance, err_msg=name
    )
  assert int(state.step) == 6


@pytest.mark.parametrize(
  'accum_steps', [4, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 8))]
)
def test_accumulation_keeps_gradient(accum_steps):
  def one_step(accum_steps):
    step, state = make_step(accum_steps=accum_steps)
    state, metrics = step(state, golden_batches()[0], jax.random.key(0))
    return metrics['train_loss'], jax.tree.leaves(state.opt_state)

  loss, momentum = one_step(accum_steps)
  want_loss, want_momentum = one_step(2)
  np.testing.assert_allclose(loss, want_loss, rtol=1e-5)
  for a, b in zip(momentum, want_momentum, strict=True):
    np.testing.assert_allclose(a, b, atol=1e-5)


def test_random_stream_depends_on_seed_step_and_part():
  keys = []

  def loss_fn(params, batch, key):
    jax.debug.callback(
      lambda k: keys.append(tuple(k.tolist())), jax.random.key_data(key)
    )
    return params['w'].sum()

  tx = optax.sgd(0.0)
  params = {'w': jnp.ones(2)}
  batch = {'image': jnp.zeros((4, 1))}

  def key_of(seed, step):
    keys.clear()
    state = state_lib.TrainState(jnp.array(step), params, tx.init(params))
    update.train_step(
      state, batch, jax.random.key(seed), loss_fn=loss_fn, tx=tx, accum_steps=2
    )
    jax.effects_barrier()
    return frozenset(keys)

  one = key_of(0, 1)
  assert len(one) == 2
  assert one == key_of(0, 1)
  assert not one & key_of(0, 2)
  assert not one & key_of(1, 1)


def test_loss_fn_applies_loss_and_label_smoothing():
  def loss(name, smoothing):
    model = models.get_model('testing', num_classes=4)
    params = models.init_params(model, (16, 16, 3))
    params['head']['bias'] = jnp.array([1.0, 2.0, 0.0, -1.0])
    batch = {'image': jnp.zeros((2, 16, 16, 3)), 'label': jnp.array([1, 1])}
    of_name = functools.partial(losses.LOSSES[name], label_smoothing=smoothing)
    loss_fn = update.make_loss_fn(model, lambda key, x: x, of_name)
    return jax.jit(loss_fn)(params, batch, jax.random.key(0))

  for name in ('softmax', 'sigmoid'):
    logits = jnp.array([[1.0, 2.0, 0.0, -1.0]] * 2)
    want = losses.LOSSES[name](logits, jnp.array([1, 1]), 0.2).mean()
    assert loss(name, 0.2) == pytest.approx(float(want), rel=1e-5)
    assert abs(loss(name, 0.0) - want) > 1e-2


def test_loss_fn_mixes_images_and_labels():
  model = models.get_model('testing', num_classes=4)
  params = models.init_params(model, (16, 16, 3))
  params['head']['bias'] = jnp.array([0.0, 1.0, 2.0, 3.0])
  params['head']['kernel'] = jax.random.normal(
    jax.random.key(5), params['head']['kernel'].shape
  )
  images = jax.random.normal(jax.random.key(0), (4, 16, 16, 3))
  labels = jnp.array([0, 3, 1, 2])

  def mix(key, images, labels):
    own = jax.random.uniform(key)
    shares = jax.nn.one_hot(labels, 4)
    return own * images, own * shares + (1 - own) * shares[::-1]

  def loss(mix, batch_labels):
    loss_fn = update.make_loss_fn(model, lambda key, x: x, mix=mix)
    batch = {'image': images, 'label': batch_labels}
    return jax.jit(loss_fn)(params, batch, jax.random.key(7))

  own = jax.random.uniform(jax.random.fold_in(jax.random.key(7), 2))
  parts = [
    loss(lambda key, images, labels: (own * images, labels), x)
    for x in (labels, labels[::-1])
  ]
  want = own * parts[0] + (1 - own) * parts[1]
  assert float(loss(mix, labels)) == pytest.approx(float(want), rel=1e-5)
  assert float(loss(None, labels)) != pytest.approx(float(want), rel=1e-3)


def test_task_passes_mixup_to_loss(image_folder, monkeypatch):
  mixes = []
  make_loss_fn = update.make_loss_fn
  monkeypatch.setattr(
    update,
    'make_loss_fn',
    lambda *args: mixes.append(args[3]) or make_loss_fn(*args),
  )
  config = tiny.get_config(str(image_folder))
  for alpha in (0.0, 0.7):
    config.pp.mixup = alpha
    tasks.make(resolve.resolve(config))
  assert mixes == [None, mixing.Mix(3, mixup=0.7)]


def test_losses_equal_formulas():
  logits = jnp.array([[2.0, 0.0, -1.0], [0.5, 0.5, 0.5]])
  labels = jnp.array([0, 2])
  log_p = np.log(np.exp(logits) / np.exp(logits).sum(1, keepdims=True))
  np.testing.assert_allclose(
    losses.softmax_cross_entropy(logits, labels),
    [-log_p[0, 0], np.log(3)],
    rtol=1e-6,
  )
  smooth = 0.7 * -log_p[[0, 1], [0, 2]] + 0.3 * -log_p.mean(1)
  np.testing.assert_allclose(
    losses.softmax_cross_entropy(logits, labels, 0.3), smooth, rtol=1e-5
  )
  p = 1 / (1 + np.exp(-np.asarray(logits)))
  want = -np.log([p[0, 0], 1 - p[0, 1], 1 - p[0, 2]]).sum()
  np.testing.assert_allclose(
    losses.sigmoid_cross_entropy(logits, labels)[0], want, rtol=1e-5
  )
