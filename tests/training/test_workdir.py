"""The workdir of a run: its lock, its data, full disks."""

import errno
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

from golden_files import REPOSITORY
import numpy as np
from processes import run
from processes import running
from processes import start
from processes import wait_for_step
import pytest
from runs import arguments
from runs import tiny

from vit_jax import train
from vit_jax.configs import common
from vit_jax.data import captions
from vit_jax.data import sources
from vit_jax.runtime import errors
from vit_jax.runtime import workdir as workdir_lib
from vit_jax.training import same_data
from vit_jax.training import start as start_lib
from vit_jax.training import state as state_lib


def last_line(result):
  assert result.returncode == 1
  assert 'Traceback' not in result.stderr
  return result.stderr.strip().splitlines()[-1]


@pytest.mark.slow
def test_refuses_second_run_until_first_ends(image_folder, tmp_path):
  args = arguments(image_folder, tmp_path / 'run')
  first = start(*args, '--config.total_steps=100000000')
  with running([first]) as results:
    wait_for_step(first, tmp_path / 'run', 20)
    line = last_line(run(*args))
    assert f'Another run is at work in {tmp_path}/run.' in line
    assert first.poll() is None
    first.kill()
    results()
  with workdir_lib.guarded(workdir_lib.at(tmp_path / 'run')):
    pass  # A kill leaves no lock behind.


def children(pid):
  tasks = pathlib.Path(f'/proc/{pid}/task').glob('*/children')
  return [int(x) for task in tasks for x in task.read_text().split()]


def is_alive(pid):
  try:
    status = pathlib.Path(f'/proc/{pid}/stat').read_text()
  except OSError:
    return False
  return status.rpartition(')')[2].split()[0] != 'Z'


@pytest.mark.slow
@pytest.mark.parametrize(
  'number, code, step',
  [(signal.SIGINT, 130, 5), (signal.SIGTERM, 0, 25), (signal.SIGKILL, -9, 5)],
)
def test_workers_end_with_run(number, code, step, image_folder, tmp_path):
  """Terminals and schedulers also send signals to the workers."""
  workdir = tmp_path / 'run'
  args = arguments(image_folder, workdir, '--config.num_workers=1')
  process = start(*args, '--config.total_steps=100000000')
  with running([process]) as results:
    wait_for_step(process, workdir, step)
    workers = children(process.pid)
    assert workers
    if number == signal.SIGKILL:
      process.kill()
    elif number == signal.SIGTERM:
      os.killpg(process.pid, number)
    else:  # The workers need not answer.
      for pid in workers:
        if b'spawn_main' in pathlib.Path(f'/proc/{pid}/cmdline').read_bytes():
          os.kill(pid, signal.SIGSTOP)
      process.send_signal(number)
    [result] = results()
  assert result.returncode == code, result.stderr
  if number != signal.SIGKILL:
    saved = max(int(p.name) for p in (workdir / 'checkpoints').glob('[0-9]*'))
    assert f': saving step {saved}; the same command continues' in result.stderr
    assert saved >= step
    assert 'Traceback' not in result.stderr
  if number == signal.SIGINT:
    line = result.stderr.strip().splitlines()[-1]
    assert line == 'vit_jax.main: interrupted.'
  while any(map(is_alive, workers)):  # The timeout of the test ends this loop.
    time.sleep(0.05)


def test_releases_lock(tmp_path):
  for _ in range(2):
    with (
      pytest.raises(ZeroDivisionError),
      workdir_lib.guarded(workdir_lib.at(tmp_path)),
    ):
      raise ZeroDivisionError
  with (  # One process cannot lock it twice.
    workdir_lib.guarded(workdir_lib.at(tmp_path)),
    pytest.raises(errors.UserError, match='Another run is at work'),
    workdir_lib.guarded(workdir_lib.at(tmp_path)),
  ):
    pass
  code = (
    'from vit_jax.runtime import workdir\n'
    f'with workdir.guarded(workdir.at({str(tmp_path)!r})): print("free")'
  )
  result = subprocess.run(
    [sys.executable, '-c', code],
    capture_output=True,
    text=True,
    check=True,
    cwd=REPOSITORY,
  )
  assert result.stdout == 'free\n'


@pytest.mark.parametrize(
  'name, message',
  [
    (
      'run/metrics.jsonl',
      r'/run/metrics.jsonl: .*Make room .* another workdir',
    ),
    ('data/1.jpg', r'/data/1.jpg: Permission denied\.$'),
  ],
)
def test_guarded_gives_advice_only_for_workdir_files(name, message, tmp_path):
  error = OSError(errno.EACCES, 'Permission denied', str(tmp_path / name))
  with (
    pytest.raises(errors.UserError, match=message),
    workdir_lib.guarded(workdir_lib.at(tmp_path / 'run')),
  ):
    raise error


@pytest.fixture
def small_disk(tmp_path):
  """A file system with room for a few checkpoints."""
  path = tmp_path / 'disk'
  path.mkdir()
  how = ['mount', '-t', 'tmpfs', '-o', 'size=1200k', 'tmpfs', str(path)]
  if (
    not shutil.which('mount')
    or subprocess.run(how, check=False, capture_output=True).returncode
  ):
    pytest.skip('needs the right to mount')
  yield path
  subprocess.run(['umount', str(path)], check=True)


@pytest.mark.slow
def test_full_disk_and_read_only_disk_end_in_advice(image_folder, small_disk):
  workdir = small_disk / 'run'
  args = arguments(image_folder, workdir, '--config.checkpoint_every=5')
  line = last_line(run(*args, '--config.keep_checkpoints=99'))
  assert 'A checkpoint cannot be written to' in line
  assert (
    'No space left on device. The newest whole checkpoint is of step ' in line
  )
  step = max(int(p.name) for p in (workdir / 'checkpoints').glob('[0-9]*[05]'))
  assert f'is of step {step}.' in line

  remount = ['mount', '-o', 'remount,ro', str(small_disk)]
  subprocess.run(remount, check=True)
  assert 'Read-only file system' in last_line(run(*args))

  # With room again, it resumes and ends.
  remount = ['mount', '-o', 'remount,rw,size=9m', str(small_disk)]
  subprocess.run(remount, check=True)
  result = run(*args)
  assert result.returncode == 0, result.stderr
  assert f'Restored step {step} ' in result.stderr
  assert (workdir / 'artifact' / 'model.npz').exists()


def test_reports_disk_too_small_for_a_checkpoint(small_disk):
  state = state_lib.TrainState(
    np.array(3), {'w': np.random.default_rng(0).normal(size=2**19)}, ()
  )
  message = 'No space left on device. There is no whole checkpoint yet. Make'
  with (
    pytest.raises(errors.UserError, match=message),
    state_lib.Saver(small_disk / 'run') as saver,
  ):
    saver.save(state)


def config_of(folder, steps):
  config = tiny(folder)
  config.total_steps, config.warmup_steps = 8, 1
  config.checkpoint_every, config.eval_every = steps, 0
  return config


@pytest.fixture
def half(image_folder, tmp_path, monkeypatch):
  """A run of eight steps that stopped after four."""

  def stop(*args):
    raise KeyboardInterrupt

  config = config_of(image_folder, 4)
  with monkeypatch.context() as patch:
    patch.setattr(train, '_write_artifacts', stop)
    with pytest.raises(KeyboardInterrupt):
      train.train_and_evaluate(config, str(tmp_path / 'run'))
  shutil.rmtree(tmp_path / 'run' / 'checkpoints' / '8')
  return tmp_path / 'run'


@pytest.mark.slow
def test_refuses_changed_data(image_folder, half):
  config = config_of(image_folder, 4)
  extra = image_folder / 'train' / 'red' / 'new.jpg'
  shutil.copy(image_folder / 'train' / 'red' / '1.jpg', extra)
  message = r'data of config.pp.train has changed .*: 36 images then, 37 now'
  with pytest.raises(errors.UserError, match=message):
    train.train_and_evaluate(config, str(half))
  assert (half / 'checkpoints' / '4').is_dir()
  extra.unlink()
  image = image_folder / 'test' / 'blue' / '1.jpg'
  before = image.read_bytes()
  shutil.copy(image_folder / 'test' / 'red' / '1.jpg', image)
  with pytest.raises(errors.UserError, match=r'data of config.pp.test has'):
    train.train_and_evaluate(config, str(half))
  # A moved folder is the same data.
  image.write_bytes(before)
  moved = image_folder.rename(image_folder.with_name('moved'))
  config.dataset = str(moved)
  assert int(train.train_and_evaluate(config, str(half)).step) == 8
  # Deleting dataset.json allows other data.
  extra = moved / 'train' / 'red' / 'new.jpg'
  shutil.copy(moved / 'train' / 'red' / '1.jpg', extra)
  (half / 'dataset.json').unlink()
  assert int(train.train_and_evaluate(config, str(half)).step) == 8
  known = json.loads((half / 'dataset.json').read_text())
  assert known['config.pp.train']['images'] == 37


@pytest.mark.slow
def test_clock_set_back_keeps_result(image_folder, half, tmp_path, monkeypatch):
  now, calls = time.time(), itertools.count()
  monkeypatch.setattr(time, 'time', lambda: now - 3600 * next(calls))
  got = train.train_and_evaluate(config_of(image_folder, 2), str(half)).params
  monkeypatch.undo()
  config = config_of(image_folder, 0)
  want = train.train_and_evaluate(config, str(tmp_path / 'whole')).params
  np.testing.assert_array_equal(got['head']['kernel'], want['head']['kernel'])


def test_changed_names_settings():
  before, now = {'a': {'b': 1, 'c': 2}, 'd': 3}, {'a': {'b': 1, 'c': 4}, 'd': 3}
  assert start_lib.changed(before, now) == {'a.c': 'a.c was 2, is 4'}


def test_settings_that_did_not_exist_had_their_defaults():
  now = start_lib.plain(common.get_config()) | {'ema_decay': 0.5}
  before = {name: x for name, x in now.items() if name != 'patch_dropout'}
  assert start_lib.changed(before, now) == {}
  del before['ema_decay']
  assert start_lib.changed(before, now) == {
    'ema_decay': 'ema_decay was 0.0, is 0.5'
  }


def test_fingerprint_depends_on_images_and_class_names():
  digits = sources.get_source('digits', 'train')
  same = sources.get_source('digits', 'train')
  other = sources.get_source('digits', 'train[:1000]')
  first = same_data.fingerprint(digits)
  assert first == same_data.fingerprint(same)
  assert first != same_data.fingerprint(other)
  digits.class_names[0] = 'zero'
  assert first != same_data.fingerprint(digits)


def test_fingerprint_depends_on_captions(tmp_path):
  found = []
  for caption in ('a cat', 'a dog'):
    (tmp_path / 'train').mkdir(exist_ok=True)
    (tmp_path / 'train' / 'a.png').write_bytes(b'x')
    text = f'a.png\t{caption}\n'
    (tmp_path / 'train' / 'captions.tsv').write_text(text)
    source = captions.open_captions(tmp_path, 'train')
    found.append(same_data.fingerprint(source))
  assert found[0] != found[1]


def test_error_names_changed_settings(tmp_path):
  config = {'base_lr': 0.1, 'model': {'hidden_size': 32}}
  (tmp_path / 'config.json').write_text(json.dumps(config))
  with (
    pytest.raises(errors.UserError, match='^no$'),
    start_lib.naming_changes(workdir_lib.at(tmp_path), config),
  ):
    raise errors.UserError('no')
  changed = {**config, 'model': {'hidden_size': 64}}
  with (
    pytest.raises(errors.UserError, match='model.hidden_size was 32, is 64'),
    start_lib.naming_changes(workdir_lib.at(tmp_path), changed),
  ):
    raise errors.UserError('no')
