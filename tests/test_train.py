"""The training step equals the official one, on one device and on eight."""

import functools
import json

from conftest import GOLDEN
from conftest import golden_arrays
from conftest import golden_json
from conftest import run
import flax.traverse_util
import jax
import jax.numpy as jnp
import meshes
import numpy as np
import optax
import pytest

from configs import tiny
from vit_jax import ahead
from vit_jax import build
from vit_jax import checkpoint
from vit_jax import errors
from vit_jax import losses
from vit_jax import models
from vit_jax import optim
from vit_jax import sharding
from vit_jax import state as state_lib
from vit_jax import train
from vit_jax import update
from vit_jax.configs import resolved
from vit_jax.data import mixing

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
  schedule = optim.create_learning_rate_schedule(6, 0.05, decay_type, 2)
  tx = optim.create_optimizer(schedule, optim_dtype=optim_dtype)
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
def test_six_steps_equal_the_official_ones(decay_type, optim_dtype, tolerance):
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


@pytest.mark.parametrize('accum_steps', [1, 4, 8])
def test_accumulation_changes_nothing(accum_steps):
  def one_step(accum_steps):
    step, state = make_step(accum_steps=accum_steps)
    state, metrics = step(state, golden_batches()[0], jax.random.key(0))
    return metrics['train_loss'], jax.tree.leaves(state.opt_state)

  loss, momentum = one_step(accum_steps)
  want_loss, want_momentum = one_step(2)
  np.testing.assert_allclose(loss, want_loss, rtol=1e-5)
  for a, b in zip(momentum, want_momentum, strict=True):
    np.testing.assert_allclose(a, b, atol=1e-5)


def test_the_random_stream_depends_on_seed_step_and_part():
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


def test_the_loss_is_smoothed_and_chosen():
  def loss(name, smoothing):
    model = models.get_model('testing', num_classes=4)
    params = models.init_params(model, (16, 16, 3))
    params['head']['bias'] = jnp.array([1.0, 2.0, 0.0, -1.0])
    batch = {'image': jnp.zeros((2, 16, 16, 3)), 'label': jnp.array([1, 1])}
    loss_fn = update.make_loss_fn(model, lambda key, x: x, name, smoothing)
    return loss_fn(params, batch, jax.random.key(0))

  for name in ('softmax', 'sigmoid'):
    logits = jnp.array([[1.0, 2.0, 0.0, -1.0]] * 2)
    want = losses.LOSSES[name](logits, jnp.array([1, 1]), 0.2).mean()
    assert loss(name, 0.2) == pytest.approx(float(want), rel=1e-5)
    assert abs(loss(name, 0.0) - want) > 1e-2


def test_the_loss_is_of_mixed_images_and_labels():
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
    loss_fn = update.make_loss_fn(model, lambda key, x: x, 'softmax', mix=mix)
    batch = {'image': images, 'label': batch_labels}
    return loss_fn(params, batch, jax.random.key(7))

  own = jax.random.uniform(jax.random.fold_in(jax.random.key(7), 2))
  parts = [
    loss(lambda key, images, labels: (own * images, labels), x)
    for x in (labels, labels[::-1])
  ]
  want = own * parts[0] + (1 - own) * parts[1]
  assert float(loss(mix, labels)) == pytest.approx(float(want), rel=1e-5)
  assert float(loss(None, labels)) != pytest.approx(float(want), rel=1e-3)


def test_what_is_built_mixes(image_folder, monkeypatch):
  mixes = []
  make_loss_fn = update.make_loss_fn
  monkeypatch.setattr(
    update,
    'make_loss_fn',
    lambda *args: mixes.append(args[-1]) or make_loss_fn(*args),
  )
  config = tiny.get_config(str(image_folder))
  for alpha in (0.0, 0.7):
    config.pp.mixup = alpha
    train.classification(resolved.with_defaults(config), sharding.make_mesh())
  assert mixes == [None, mixing.Mix(3, mixup=0.7)]


def test_parameters_and_momentum_are_sharded_by_the_rules():
  mesh = sharding.make_mesh()
  model = models.get_model('testing', num_classes=4)
  tx = optim.create_optimizer(lambda _: 0.1)
  like = build.abstract_state(model, tx, (16, 16, 3), mesh)
  specs = {
    jax.tree_util.keystr(path, simple=True, separator='/'): x.sharding.spec
    for path, x in jax.tree_util.tree_leaves_with_path(like)
  }
  P = jax.sharding.PartitionSpec
  wanted = {
    'MlpBlock_0/Dense_0/kernel': P('fsdp', 'model'),
    'MlpBlock_0/Dense_1/kernel': P('model', 'fsdp'),
    'query/kernel': P('fsdp', 'model', None),
    'value/kernel': P('fsdp', 'model', None),
    'out/kernel': P('model', None, 'fsdp'),
    'embedding/kernel': P(None, None, None, 'fsdp'),
    'head/kernel': P('fsdp', 'model'),
    'head/bias': P(None),
    'cls': P(None, None, None),
  }
  for name, spec in wanted.items():
    found = [s for path, s in specs.items() if path.endswith(name)]
    assert len(found) == 2, name  # The parameter and its momentum.
    assert set(found) == {spec}, name


def test_losses():
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
  is_in_top = losses.is_in_top_k(jnp.eye(6)[:2], jnp.array([0, 5]), 5)
  assert is_in_top.tolist() == [True, False]


def test_checkpoints_keep_the_newest_and_the_best(tmp_path):
  saver = state_lib.Saver(tmp_path, keep=2)
  accuracies = {1: 0.2, 2: 0.9, 3: 0.4, 5: 0.5, 6: None}
  for step, accuracy in accuracies.items():
    state = state_lib.TrainState(jnp.array(step), {'w': jnp.ones(3) * step}, ())
    metrics = accuracy and {'accuracy_test': accuracy}
    saver.save(state, metrics)
  saver.close()
  folder = tmp_path / 'checkpoints'
  steps = {int(p.name) for p in folder.iterdir() if p.name.isdigit()}
  assert steps == {2, 5, 6}


def test_the_best_is_kept_after_a_restart_too(tmp_path):
  for steps in ((1, 2), (3, 4), (5, 6)):
    saver = state_lib.Saver(tmp_path, keep=1)
    for step in steps:
      state = state_lib.TrainState(jnp.array(step), {'w': jnp.ones(3)}, ())
      saver.save(state, {'accuracy_test': 1 / step})
    saver.close()
  steps = {int(p.name) for p in (tmp_path / 'checkpoints').iterdir()}
  assert steps == {1, 6}


def test_what_a_kill_left_is_removed_but_not_by_readers(tmp_path):
  left = tmp_path / 'checkpoints' / f'5{state_lib._TEMPORARY}'
  left.mkdir(parents=True)
  (left / 'file').write_text('half')
  reader = state_lib.Saver(tmp_path, read_only=True)
  assert reader.latest_step is None
  assert left.exists()
  writer = state_lib.Saver(tmp_path)
  assert writer.latest_step is None
  assert not left.exists()


def test_a_reader_beside_a_writer_disturbs_nothing(tmp_path):
  writer = state_lib.Saver(tmp_path, keep=9)
  for step in range(1, 6):
    state = state_lib.TrainState(
      jnp.array(step), {'w': jnp.full((1024, 1024), step)}, ()
    )
    writer.save(state, {'accuracy_test': step / 10})
    reader = state_lib.Saver(tmp_path, read_only=True)
    assert (reader.latest_step or 0) <= step
    reader.close()
  writer.close()
  assert state_lib.Saver(tmp_path).best() == pytest.approx(0.5)
  steps = {int(p.name) for p in (tmp_path / 'checkpoints').iterdir()}
  assert steps == {1, 2, 3, 4, 5}


def test_saving_does_not_see_later_steps(tmp_path):
  """The step donates its input while the checkpoint is written."""
  tx = optax.sgd(1.0)
  step = jax.jit(
    functools.partial(
      update.train_step, loss_fn=lambda p, batch, key: p['w'].sum(), tx=tx
    ),
    donate_argnums=0,
  )
  params = {'w': jnp.zeros((512, 512))}
  state = state_lib.TrainState(jnp.array(0), params, tx.init(params))
  saver = state_lib.Saver(tmp_path, keep=9)
  for _ in range(5):
    state, _ = step(state, {}, jax.random.key(0))
    saver.save(state)
  saver.close()
  restored = state_lib.Saver(tmp_path, keep=9)
  for saved in range(1, 6):
    got = restored._manager.restore(saved)
    np.testing.assert_array_equal(
      got['params']['w'], np.full((512, 512), -saved)
    )


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
  def state(width):
    params = {'w': jnp.ones(width)}
    return state_lib.TrainState(jnp.array(3), params, ())

  saver = state_lib.Saver(tmp_path)
  saver.save(state(4))
  saver.close()
  sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
  like = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
    state(5),
  )
  with pytest.raises(errors.UserError, match='another --workdir'):
    state_lib.Saver(tmp_path).restore(like)


@pytest.mark.parametrize('name', ['b16', 'r_ti16', 'mixer_b16', 'lit_l16ti'])
def test_all_that_is_big_is_sharded(name):
  classes = {} if name.startswith('lit') else {'num_classes': 1000}
  model = models.get_model(name, **classes)
  params = jax.eval_shape(lambda: models.init_params(model, (224, 224, 3)))
  axes = ('data', 'fsdp', 'model')
  mesh = jax.sharding.AbstractMesh((1, 4, 1), axes)
  on_device = ahead.device_bytes(sharding.place(mesh, params))
  mesh = jax.sharding.AbstractMesh((1, 1, 1), axes)
  in_all = ahead.device_bytes(sharding.place(mesh, params))
  assert on_device < 0.27 * in_all


def test_stacked_layers_are_sharded_as_the_layers_are():
  P = jax.sharding.PartitionSpec
  mesh = jax.sharding.AbstractMesh((1, 2, 2), ('data', 'fsdp', 'model'))
  params = {'MlpBlock_0': {'Dense_0': {'kernel': jnp.zeros((6, 8, 8))}}}
  (placed,) = jax.tree.leaves(sharding.place(mesh, params))
  assert placed.sharding.spec == P(None, 'fsdp', 'model')


def test_every_mesh_of_eight_devices_equals_one(image_folder, tmp_path):
  result = run('tests.meshes', str(image_folder), str(tmp_path), devices=8)
  assert result.returncode == 0, result.stderr
  held = json.loads(result.stdout)
  meshes.train(image_folder, tmp_path / 'one')

  def metrics(name):
    lines = (tmp_path / name / 'metrics.jsonl').read_text().splitlines()
    return [json.loads(line) for line in lines]

  for name in meshes.MESHES:
    for a, b in zip(metrics(name), metrics('one'), strict=True):
      assert a.keys() == b.keys()
      for key in ('train_loss', 'grad_norm', 'accuracy_test', 'loss_test'):
        if key in a:
          assert a[key] == pytest.approx(b[key], rel=1e-5), (name, key)
    got, want = (
      checkpoint.load(tmp_path / n / 'artifact' / 'model.npz')
      for n in (name, 'one')
    )
    jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), got, want
    )
  # Biases and the like, half of a percent of a real model, are not split.
  for kind in ('params', 'opt_state'):
    data, fsdp, model = (held[name][kind] for name in meshes.MESHES)
    assert fsdp < 0.56 * data
    assert model < 0.42 * data
