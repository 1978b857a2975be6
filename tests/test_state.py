"""Checkpoints: which are kept, and what is in them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from vit_jax import errors
from vit_jax import state as state_lib
from vit_jax import update


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
