"""The rate is chosen on held-out images, and nothing is run twice."""

import json

from conftest import run
import cv2
import pytest

from configs import tiny
from vit_jax import errors
from vit_jax import sweep
from vit_jax import train
from vit_jax.configs import common
from vit_jax.configs import validate


def get_config(folder, rates=(0.003, 1e30, 0.01), seeds=(1,)):
  config = tiny.get_config(str(folder))
  config.update(
    {'optimizer': 'sgd', 'grad_norm_clip': 0.0, 'total_epochs': 2.0}
    | {'eval_every_epochs': 0.5, 'progress_every': 1, 'checkpoint_every': 2}
  )
  return common.with_sweep(
    config, rates, train='train[:75%]', holdout='train[75%:]', seeds=seeds
  )


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  """(images, workdir, result) of a sweep, of which one trial diverges."""
  from conftest import make_image_folder

  root = tmp_path_factory.mktemp('sweep')
  folder = make_image_folder(root / 'images')
  return (
    folder,
    root / 'run',
    sweep.sweep(get_config(folder), str(root / 'run')),
  )


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
    assert path.read_text().count('accuracy_test') == 1
  image = cv2.imread(str(workdir / 'sweep.png'))
  assert image.shape[0] > 300 > image.min()


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
  assert table.endswith('try further ones.')


def test_a_sweep_is_no_run_of_main(tmp_path):
  result = run(
    'vit_jax.main',
    '--config=configs/sweep_cifar10.py',
    f'--workdir={tmp_path}',
  )
  assert result.returncode == 1
  assert 'Sweeps are run by python -m vit_jax.sweep' in result.stderr
