"""Workdirs that are addresses; a folder stands for the bucket."""

import json
import os
import re
import time

from golden_files import REPOSITORY
import jax.numpy as jnp
from pictures import make_image_folder
from processes import call_command
import pytest
from runs import rows

from vit_jax import checkpoint
from vit_jax.commands import cli
from vit_jax.commands import dispatch
from vit_jax.configs import common
from vit_jax.configs import models
from vit_jax.configs import validate
from vit_jax.data import sources
from vit_jax.data.texts import text
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import storage
from vit_jax.training import metrics
from vit_jax.training import state as state_lib


@pytest.fixture
def bucket(monkeypatch, tmp_path):
  """A folder that counts as an address."""
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


def test_errors_of_buckets_are_shown(monkeypatch):
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


def test_leftovers_of_killed_writes_are_removed_after_a_day(tmp_path):
  path, now = tmp_path / 'a[1].json', time.time()
  for name, age in (('.a[1].json.1.tmp', 90_000), ('.a[1].json.2.tmp', 60)):
    (tmp_path / name).write_text('cut')
    os.utime(tmp_path / name, (now - age, now - age))
  for name in ('.a[1].json.x.tmp', '.other.json.1.tmp'):
    (tmp_path / name / 'new').mkdir(parents=True)
    os.utime(tmp_path / name, (now - 90_000, now - 90_000))
  files.write_json({}, path)
  with files.replaced_folder(tmp_path / 'artifact'):
    assert len(list(tmp_path.glob('.artifact.*.tmp'))) == 1
  left = {p.name for p in tmp_path.iterdir()}
  assert left == {
    path.name,
    '.a[1].json.2.tmp',
    '.other.json.1.tmp',
    'artifact',
  }


@pytest.mark.parametrize(
  'path', ['gs://b/x', 'gs:/b/x', 's3://b', 'http://h/x']
)
def test_local_path_refuses_addresses(path):
  assert storage.is_address(path)
  with pytest.raises(errors.UserError, match=f'^{path} is an address'):
    storage.local_path(path)


@pytest.mark.parametrize('path', ['/a/b', 'a:b', 'c:/x', 'x/gs:/y', '-', ''])
def test_local_path_takes_names_of_files(path):
  assert not storage.is_address(path)
  assert storage.local_path(path) == storage.pathlib.Path(path)


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
  monkeypatch.setenv('HOME', str(tmp_path / 'home'))
  monkeypatch.chdir(tmp_path)
  home = make_image_folder(tmp_path / 'home' / 'images').parent
  assert storage.make_workdir('~/run') == home / 'run'
  assert [x.name for x in tmp_path.iterdir()] == ['home']
  assert len(sources.get_source('~/images', 'train'))
  assert sources.is_unsplit('~/images/train')
  (home / 'table.csv').write_text('image,label\n')
  sources.require_folder('~/table.csv')


def test_a_workdir_with_one_slash_is_refused(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  for workdir in ('gs:/bucket/run', 's3://bucket/run'):
    with pytest.raises(
      errors.UserError, match='a folder or gs://BUCKET/FOLDER'
    ):
      storage.make_workdir(workdir)
  assert not list(tmp_path.iterdir())


ADDRESS = 'gs://no-such-bucket/x'


def _text_flags(name):
  """Returns the flags of a command that take any text."""
  xml = call_command(name, '--helpxml').stdout
  own = set(call_command('--complete', name).stdout.split())
  return [
    flag
    for flag, kind in _FLAG.findall(xml)
    if kind == 'string' and f'--{flag}=' in own
  ]


_FLAG = re.compile(r'<name>(.*?)</name>.*?<type>(.*?)</type>', re.DOTALL)


@pytest.mark.parametrize('name', dispatch.COMMANDS)
def test_a_flag_is_refused_an_address_or_may_be_one(
  name, tmp_path, monkeypatch
):
  """Each flag that takes a text, so that a new one is covered."""
  monkeypatch.chdir(tmp_path)
  for flag in _text_flags(name):
    if flag in (*cli.MAY_BE_ADDRESSES, *cli.TEXTS):
      continue
    required = []
    if name in ('train', 'sweep'):
      required = [f'--config={REPOSITORY}/configs/digits.py']
    result = call_command(name, *required, f'--{flag}={ADDRESS}')
    assert result.returncode == 1, flag
    assert 'Traceback' not in result.stderr, flag
    if flag != 'workdir':
      assert 'is an address' in result.stderr or 'given' in result.stderr, flag
  assert not list(tmp_path.iterdir())


@pytest.fixture
def settings():
  config = common.with_dataset(common.get_config(), 'digits')
  config.model = models.get_model_config('mini8')
  config.total_steps, config.pp.crop = 1_000, 32
  return config


def test_a_setting_is_refused_an_address_or_may_be_one(
  settings, tmp_path, monkeypatch
):
  """Each setting that is a text, so that a new one is covered."""
  monkeypatch.chdir(tmp_path)
  readers = {  # Which come before anything is written.
    'dataset': lambda: sources.get_source(ADDRESS, 'train'),
    'tfds_data_dir': lambda: sources.get_source(
      'a_name', 'train', data_dir=ADDRESS
    ),
    'vocabulary': lambda: text.get_tokenizer('bert', ADDRESS, 16),
  }
  validate.validate(settings)
  texts = {k for k in settings if settings.get_type(k) is str}
  for name in texts - {'pretrained', 'pretrained_dir'}:
    config = settings.copy_and_resolve_references()
    config[name] = ADDRESS
    with pytest.raises(errors.UserError) as error:  # noqa: PT012
      validate.validate(config)
      readers[name]()
    assert ADDRESS in str(error.value), name
  assert {*readers} <= texts
  assert not list(tmp_path.iterdir())


def test_weights_are_not_written_to_an_address(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with pytest.raises(errors.UserError, match='is an address'):
    checkpoint.save({'head': {'bias': jnp.zeros(3)}}, f'{ADDRESS}.npz')
  assert not list(tmp_path.iterdir())


def test_folders_of_a_wheel_come_before_those_beside_the_package(
  tmp_path, monkeypatch
):
  file = tmp_path / 'site-packages' / 'vit_jax' / 'runtime' / 'storage.py'
  monkeypatch.setattr(storage, '__file__', str(file))
  beside = tmp_path / 'site-packages' / 'configs'
  assert storage.packaged('run_files', 'configs') == beside
  inside = tmp_path / 'site-packages' / 'vit_jax' / 'run_files'
  inside.mkdir(parents=True)
  assert storage.packaged('run_files', 'configs') == inside
