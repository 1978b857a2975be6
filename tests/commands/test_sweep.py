"""Sweeps: the choice of the rate, what is run again, refusals."""

import json
import shutil

import cv2
from pictures import make_image_folder
import pytest
from run_files import tiny

from vit_jax import sweep
from vit_jax import train
from vit_jax.configs import common
from vit_jax.configs import validate
from vit_jax.runtime import errors
from vit_jax.runtime import storage


def get_config(folder, rates=(0.003, 1e30, 0.01), seeds=(1,)):
  config = tiny.get_config(str(folder))
  config.update(
    {'optimizer': 'sgd', 'grad_norm_clip': 0.0, 'total_epochs': 2.0}
    | {'eval_every_epochs': 0.5, 'progress_every': 1, 'checkpoint_every': 2}
  )
  return common.with_sweep(
    config, rates, train='train[:75%]', holdout='train[75%:]', seeds=seeds
  )


def never(config, workdir):
  raise AssertionError(f'{workdir} is run again.')


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  """(images, workdir, result) of a sweep in which one trial diverges."""
  root = tmp_path_factory.mktemp('sweep')
  folder = make_image_folder(root / 'images')
  return (
    folder,
    root / 'run',
    sweep.sweep(get_config(folder), str(root / 'run')),
  )


@pytest.mark.slow
def test_the_best_rate_is_trained_on_everything(finished):
  _, workdir, result = finished
  low, failed, high = result['trials']
  assert 'diverged' in failed['error']
  best = max((low, high), key=lambda trial: trial['accuracy'])
  assert result['best_base_lr'] == best['base_lr']
  assert {*result['test']} == {1}
  saved = {
    path.parent.name: json.loads(path.read_text())
    for path in workdir.glob('*/*/**/config.json')
    if path.parent.name != 'artifact'
  }
  trial, final = saved['base_lr=0.003'], saved['seed=1']
  assert (trial['pp']['train'], trial['pp']['test']) == (
    'train[:75%]',
    'train[75%:]',
  )
  assert (final['pp']['train'], final['pp']['test']) == ('train', 'test')
  assert final['base_lr'] == best['base_lr']
  for path in workdir.glob('*/base_lr=0.0*/**/metrics.jsonl'):
    assert path.read_text().count('"accuracy_test"') == 1
  image = cv2.imread(str(workdir / 'sweep.png'))
  assert image.shape[0] > 300 > image.min()


@pytest.mark.slow
def test_what_is_finished_is_not_run_again(finished, monkeypatch):
  folder, workdir, want = finished
  runs = []

  def spy(config, workdir):
    runs.append(config.base_lr)
    raise errors.UserError('diverged')

  monkeypatch.setattr(train, 'train_and_evaluate', spy)
  assert sweep.sweep(get_config(folder), str(workdir)) == want | {
    'trials': [want['trials'][0], {'base_lr': 1e30, 'error': 'diverged'},
               want['trials'][2]]
  }  # fmt: skip
  assert runs == [1e30]


def test_a_sweep_of_which_nothing_ends(image_folder, tmp_path, monkeypatch):
  def diverge(config, workdir):
    raise errors.UserError('It diverged.')

  monkeypatch.setattr(train, 'train_and_evaluate', diverge)
  with pytest.raises(errors.UserError, match='None of 3 trials .* It diverged'):
    sweep.sweep(get_config(image_folder), str(tmp_path))


@pytest.mark.parametrize(
  'given, message',
  [
    (
      {'sweep.train': 'train[:80%]'},
      "train='train[:80%]' and holdout='train[75%:]' have images in common",
    ),
    (
      {'sweep.holdout': 'test'},
      "holdout='test' and config.pp.test='test' have images in common",
    ),
    (
      {'pp.test': 'train[90%:]'},
      "config.pp.train='train' and config.pp.test='train[90%:]' have images",
    ),
    (
      {'pp.train': 'train[:50%]', 'pp.holdout': 'train[50%:]'},
      "train='train[:75%]' and config.pp.holdout='train[50%:]' have images",
    ),
  ],
)
def test_splits_in_common_are_refused_before_any_run(
  image_folder, tmp_path, given, message
):
  config = get_config(image_folder)
  config.update_from_flattened_dict(given)
  with pytest.raises(errors.UserError) as error:
    sweep.sweep(config, str(tmp_path), train=never)
  assert str(error.value).startswith(message)


@pytest.mark.slow
@pytest.mark.parametrize(
  'setting, value, message',
  [
    ('weight_decay', 0.5, 'weight_decay was 0.0, is 0.5'),
    ('total_epochs', 3.0, 'total_epochs was 2.0, is 3.0, .*total_steps was'),
  ],
)
def test_a_sweep_with_other_settings_is_refused(
  finished, monkeypatch, setting, value, message
):
  folder, workdir, _ = finished
  monkeypatch.setattr(train, 'train_and_evaluate', never)
  config = get_config(folder).unlock()
  config[setting] = value
  with pytest.raises(errors.UserError, match=message) as error:
    sweep.sweep(config, str(workdir))
  assert str(workdir / 'trials' / 'base_lr=0.003') in str(error.value)


@pytest.mark.slow
def test_other_settings_of_a_final_run_are_refused_before_any_trial(
  finished, tmp_path, monkeypatch
):
  folder, workdir, want = finished
  shutil.copytree(workdir, tmp_path / 'run')
  shutil.rmtree(tmp_path / 'run' / 'trials')
  monkeypatch.setattr(train, 'train_and_evaluate', never)
  config = get_config(folder, rates=(want['best_base_lr'],)).unlock()
  config.momentum = 0.5
  with pytest.raises(errors.UserError, match=r'seed=1 .*momentum was 0.9, is'):
    sweep.sweep(config, str(tmp_path / 'run'))


@pytest.mark.slow
def test_settings_that_change_no_result_may_change(finished, monkeypatch):
  folder, workdir, want = finished
  monkeypatch.setattr(train, 'train_and_evaluate', never)
  config = get_config(folder, rates=(0.003, 0.01)).unlock()
  config.num_threads, config.checkpoint_every = 2, 7
  assert sweep.sweep(config, str(workdir))['test'] == want['test']


@pytest.mark.slow
def test_other_images_are_refused(finished, tmp_path, monkeypatch):
  folder, workdir, _ = finished
  moved = tmp_path / 'images'
  folder.rename(moved)
  shutil.copytree(moved, folder)
  try:
    red = sorted((folder / 'train' / 'red').iterdir())
    red[0].write_bytes(red[1].read_bytes())
    monkeypatch.setattr(train, 'train_and_evaluate', never)
    with pytest.raises(errors.UserError, match='data of config.pp.* has chang'):
      sweep.sweep(get_config(folder), str(workdir))
  finally:
    shutil.rmtree(folder)
    moved.rename(folder)


@pytest.mark.slow
def test_a_sweep_in_a_bucket_stays_there(finished, tmp_path, monkeypatch):
  """A folder stands for the bucket, as in test_storage.py."""
  folder, _, _ = finished
  root = tmp_path / 'bucket'
  is_in_bucket = lambda path: str(path).startswith(('gs://', str(root)))
  monkeypatch.setattr(storage, 'is_address', is_in_bucket)
  to_folder = lambda path: storage.epath.Path(
    str(path).replace('gs://bucket', str(root))
  )
  monkeypatch.setattr(storage, 'as_path', to_folder)
  monkeypatch.chdir(tmp_path)
  config = get_config(folder, rates=(0.003,)).unlock()
  config.total_epochs = 0.5
  result = sweep.sweep(config, 'gs://bucket/sweep')
  assert [path.name for path in tmp_path.iterdir()] == ['bucket']
  assert json.loads((root / 'sweep' / 'sweep.json').read_text()) == {
    **result,
    'test': {'1': result['test'][1]},
  }
  assert cv2.imread(str(root / 'sweep' / 'sweep.png')) is not None
  monkeypatch.setattr(train, 'train_and_evaluate', never)
  assert sweep.sweep(config, 'gs://bucket/sweep') == result


@pytest.mark.parametrize(
  'name, value, message',
  [
    ('base_lr', (), r'config.sweep.base_lr is \(\), must have one value'),
    ('base_lr', (-1.0,), 'config.sweep.base_lr is -1.0, must be at least 0'),
    ('seeds', (), 'config.sweep.seeds'),
    ('holdout', 'train[98%', 'config.sweep.holdout .* must be a split'),
  ],
)
def test_sweeps_that_cannot_work(name, value, message):
  config = get_config('/images').unlock()
  config.sweep[name] = value
  with pytest.raises(errors.UserError, match=message):
    validate.validate(config)


def test_rates_that_would_share_a_folder_are_refused(image_folder, tmp_path):
  config = get_config(image_folder, rates=(0.01, 0.010000001))
  with pytest.raises(errors.UserError, match='each once'):
    sweep.sweep(config, str(tmp_path))


def test_a_sweep_needs_rates_that_are_used():
  config = get_config('/images').unlock()
  config.stages = ({'total_epochs': 1, 'base_lr': 0.1},)
  with pytest.raises(errors.UserError, match='stage 1: base_lr is 0.1'):
    validate.validate(config)
  config.stages = ({'total_epochs': 1},)
  validate.validate(config)
  del config['sweep']
  with pytest.raises(errors.UserError, match='there is no config.sweep'):
    validate.validate(config)


def test_the_table():
  result = {
    'metric': 'accuracy',
    'trials': [
      {'base_lr': 0.001, 'accuracy': 0.3},
      {'base_lr': 0.01, 'accuracy': 0.5},
      {'base_lr': 0.1, 'error': 'it diverged'},
    ],
    'best_base_lr': 0.01,
    'test': {0: 0.5, 1: 0.7},
  }
  lines = sweep.table(result).splitlines()
  assert '| 0.01 | 0.5000 |' in lines
  assert '| 0.1 | it diverged |' in lines
  assert lines[-1] == '| 0.01 | 0.6000 ± 0.1414 | 2 |'
  table = sweep.table(result | {'best_base_lr': 0.001})
  assert table.endswith('try rates beyond it.')
