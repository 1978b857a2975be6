"""Checkpoints: which ones a run keeps, and their content."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from vit_jax.commands import cli
from vit_jax.runtime import errors
from vit_jax.training import state as state_lib
from vit_jax.training import update


def test_keeps_newest_and_best_checkpoint(tmp_path):
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


def test_checkpoints_without_metrics_warn_of_nothing(tmp_path, caplog):
  saver = state_lib.Saver(tmp_path)
  state = state_lib.TrainState(jnp.array(1), {'w': jnp.ones(3)}, ())
  saver.save(state, None)
  saver.close()
  assert saver.latest_step == 1
  assert not list(filter(cli._is_ours, caplog.records))


def test_keeps_best_checkpoint_after_restart(tmp_path):
  for steps in ((1, 2), (3, 4), (5, 6)):
    saver = state_lib.Saver(tmp_path, keep=1)
    for step in steps:
      state = state_lib.TrainState(jnp.array(step), {'w': jnp.ones(3)}, ())
      saver.save(state, {'accuracy_test': 1 / step})
    saver.close()
  steps = {int(p.name) for p in (tmp_path / 'checkpoints').iterdir()}
  assert steps == {1, 6}


def test_only_writers_remove_incomplete_checkpoints(tmp_path):
  left = tmp_path / 'checkpoints' / f'5{state_lib._TEMPORARY}'
  left.mkdir(parents=True)
  (left / 'file').write_text('half')
  reader = state_lib.Saver(tmp_path, read_only=True)
  assert reader.latest_step is None
  assert left.exists()
  writer = state_lib.Saver(tmp_path)
  assert writer.latest_step is None
  assert not left.exists()


def test_reader_does_not_disturb_writer(tmp_path):
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


def test_saved_state_excludes_later_steps(tmp_path):
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


def saved(workdir, *steps):
  state = state_lib.TrainState(
    jnp.array(0), {'w': jnp.ones(4)}, {'m': jnp.ones(4)}
  )
  saver = state_lib.Saver(workdir, keep=9)
  for step in steps:
    saver.save(state.replace(step=jnp.array(step)))
  saver.close()
  sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
  return jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), state
  )


def test_restore_names_arrays_that_differ(tmp_path):
  like = saved(tmp_path, 3)
  wider = jax.ShapeDtypeStruct((5,), jnp.float32, sharding=like.step.sharding)
  for changed, row in (
    (like.replace(params={'w': wider}), r'params/w: \(4,\) in .* \(5,\) by'),
    (like.replace(params={'w': like.params['w'], 'b': wider}),
     r'params/b: none in the checkpoint, \(5,\) by this config'),
    (like.replace(opt_state={}), r'opt_state/m: \(4,\) in .*, none by'),
  ):  # fmt: skip
    saver = state_lib.Saver(tmp_path)
    with pytest.raises(errors.UserError, match=f'(?s){row}') as e:
      saver.restore(changed)
    assert 'Arrays that differ: 1.' in str(e.value)
    assert 'strict=' not in str(e.value)
    assert 'another workdir' in str(e.value)
  wrong = like.replace(params={'w': wider}, opt_state=())
  with pytest.raises(errors.UserError, match='differ: 1.\n  params/w'):
    state_lib.Saver(tmp_path).restore_for_evaluation(wrong)


# Orbax reads all arrays at once and closes its event loop at the first error; the
# others end later. Commands hide this, see `cli._report`.
@pytest.mark.filterwarnings('ignore:(?s).*Event loop is closed')
def test_damaged_checkpoint_error_names_previous_step(tmp_path):
  like = saved(tmp_path, 3, 7)
  for path in (tmp_path / 'checkpoints' / '7' / 'default').rglob('d/*'):
    path.write_bytes(path.read_bytes()[:10])
  with pytest.raises(
    errors.UserError, match='7 cannot be read: .* from step 3'
  ):
    state_lib.Saver(tmp_path).restore(like)
