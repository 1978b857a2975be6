"""Workdirs that are addresses; a folder stands for the bucket."""

import json

from conftest import rows
import jax.numpy as jnp
import pytest

from vit_jax import errors
from vit_jax import metrics
from vit_jax import state as state_lib
from vit_jax import storage
from vit_jax.interop import files


@pytest.fixture
def bucket(monkeypatch, tmp_path):
  """A folder that is taken for an address."""
  root = tmp_path / 'bucket'
  root.mkdir()
  is_in_bucket = lambda path: str(path).startswith(str(root))
  monkeypatch.setattr(storage, 'is_address', is_in_bucket)
  return root


def test_metrics_reach_an_address_when_they_are_synced(bucket):
  writer = metrics.Writer(bucket / 'run', 1)
  for step in (1, 2):
    writer.write(step, {'train_loss': 1 / step})
  assert not (bucket / 'run').exists()
  writer.sync()
  assert [row['step'] for row in rows(bucket / 'run')] == [1, 2]
  writer.write(3, {'train_loss': 0.1})  # Lost: the machine is.

  writer = metrics.Writer(bucket / 'run', 2)
  writer.write(2, {'train_loss': 0.7})
  writer.close()
  assert [row['train_loss'] for row in rows(bucket / 'run')] == [1, 0.7]
  assert list((bucket / 'run').glob('events.out.tfevents.*'))


def test_the_file_that_makes_an_artifact_is_copied_last(bucket, monkeypatch):
  copied = []
  write = storage.epath.Path.write_bytes
  monkeypatch.setattr(
    type(storage.as_path(bucket)),
    'write_bytes',
    lambda path, data: (copied.append(path.name), write(path, data)),
  )
  with files.replaced_folder(bucket / 'artifact', last='b') as folder:
    for name in 'cab':
      (folder / name).write_text(name)
    assert not (bucket / 'artifact').exists()
  assert copied == ['a', 'c', 'b']
  assert (bucket / 'artifact' / 'c').read_text() == 'c'


def test_checkpoints_at_an_address_are_whole_with_their_last_file(bucket):
  """Orbax cannot rename there; see `_not_whole`."""
  state = state_lib.TrainState(jnp.array(2), {'w': jnp.ones(3)}, ())
  for step in (1, 2):
    saver = state_lib.Saver(bucket)
    saver.save(state.replace(step=jnp.array(step)))
    saver.close()
    (bucket / 'checkpoints' / str(step) / state_lib._WHOLE).write_text('')
  (bucket / 'checkpoints' / '2' / state_lib._WHOLE).unlink()
  reader = state_lib.Saver(bucket, read_only=True)
  assert (bucket / 'checkpoints' / '2').exists()
  reader.close()
  assert state_lib.Saver(bucket).latest_step == 1
  assert not (bucket / 'checkpoints' / '2').exists()


def test_what_a_bucket_answers_is_said(monkeypatch):
  def refuse(path, *unused_args):
    raise PermissionError(13, 'Permission denied')

  path = type(storage.as_path('gs://bucket/run'))
  monkeypatch.setattr(path, 'write_text', refuse)
  with pytest.raises(errors.UserError, match=r'gs://bucket/run .*denied\.$'):
    storage.make_workdir('gs://bucket/run')


def test_settings_of_a_run_are_read_from_an_address(bucket):
  path = storage.as_path(bucket) / 'config.json'
  assert files.read_json(path) == {}
  files.write_json({'seed': 1}, path)
  assert files.read_json(path) == {'seed': 1}
  assert json.loads((bucket / 'config.json').read_text()) == {'seed': 1}
