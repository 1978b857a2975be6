"""Durations: their ranges, low peaks of the learning rate, fewer steps than done."""

from golden_files import GOLDEN
import numpy as np
import pytest
from runs import run_file
from runs import tiny

from vit_jax import train
from vit_jax.configs import resolved
from vit_jax.configs import validate
from vit_jax.runtime import errors
from vit_jax.training import stages
from vit_jax.training import start


def digits(**settings):
  config = run_file('configs/digits.py').get_config().unlock()
  config.update(settings)
  return config


@pytest.mark.parametrize(
  'settings, message',
  [
    (
      {'total_epochs': 0.0},
      'config.total_epochs is 0.0, must be at least 0.00',
    ),
    ({'total_epochs': float('inf')}, 'is inf, must be .* and finite'),
    (
      {'warmup_epochs': -1.0},
      'config.warmup_epochs is -1.0, must be at least 0',
    ),
    (
      {'total_steps': 0, 'eval_every_epochs': 1.0},
      'config.total_steps is 0, must be at least 1',
    ),
    ({'warmup_steps': -1, 'total_epochs': 1.0}, 'config.warmup_steps is -1'),
    (
      {'stages': ({'total_epochs': 0.0},)},
      'stage 1: total_epochs is 0.0, must',
    ),
    (
      {'stages': ({'total_steps': 4}, {'total_steps': 4, 'base_lr': -1.0})},
      'stage 2: base_lr is -1.0, must be at least',
    ),
    (
      {'stages': ({'total_steps': 4, 'optimizer': 'adam'},)},
      "stage 1: optimizer is 'adam', must be one of .* mean 'adamw'",
    ),
    (
      {'stages': ({'total_steps': 4, 'base_lr': 'high'},)},
      "stage 1: base_lr is 'high', must be like 0.002",
    ),
  ],
)
def test_durations_and_stages_out_of_range_are_refused(settings, message):
  with pytest.raises(errors.UserError, match=message):
    validate.validate(digits(**settings))


@pytest.mark.parametrize('unit', ['steps', 'epochs'])
@pytest.mark.parametrize(
  'total, warmup, cooldown, peak',
  [
    (1, 500, 0, '0'),  # The official test of the trainer.
    (10, 20, 0, '0.009'),  # Step 9 of a warm-up of 20.
    (10, 8, 8, '0.0078'),  # 5/8 of the warm-up times 5/8 of the cooldown.
    (10, 10, 0, '0.018'),
    (10, 6, 4, None),
    (10, 9, 0, None),
  ],
)
def test_unreached_peak_learning_rates_are_logged(
  caplog, unit, total, warmup, cooldown, peak
):
  names = (f'{name}_{unit}' for name in ('total', 'warmup', 'cooldown'))
  number = int if unit == 'steps' else float
  values = map(number, (total, warmup, cooldown))
  config = digits(
    base_lr=0.02, decay_type='constant', **dict(zip(names, values, strict=True))
  )
  validate.validate(config)
  config = resolved.in_steps(config, config.batch)  # An epoch is one step.
  _, schedule = stages.optimizer(config, {})
  start._warn_of_low_peaks([config], [schedule])
  rates = [float(schedule(step)) for step in range(total)]
  assert (max(rates) < 0.02 * 0.999) == (peak is not None)
  assert ('do not fit' in caplog.text) == (peak is not None)
  if peak:
    assert f'reaches {peak} at most, not base_lr, 0.02.' in caplog.text


def test_stages_with_an_unreached_peak_are_logged(caplog):
  config = digits(
    stages=(
      {'total_steps': 9, 'warmup_steps': 1},
      {'total_steps': 4, 'warmup_steps': 9, 'base_lr': 0.1},
    )
  )
  schedules = [
    stages.optimizer(stage, {})[1] for stage in resolved.stages(config)
  ]
  start._warn_of_low_peaks(resolved.stages(config), schedules)
  [record] = caplog.records
  assert record.getMessage().startswith('Stage 2: warmup_steps 9 and')


def test_profile_steps_after_the_run_are_refused(tmp_path, image_folder):
  config = tiny(image_folder)
  config.total_steps, config.profile_steps = 4, (5, 6)
  with pytest.raises(errors.UserError, match=r'\(5, 6\), but .* is 4: no step'):
    train.train_and_evaluate(config, str(tmp_path / 'run'))
  assert {p.name for p in (tmp_path / 'run').iterdir()} <= {
    '.lock',
    'checkpoints',
  }


def test_refused_runs_write_no_files(tmp_path, image_folder):
  config = tiny(image_folder)
  config.pretrained, config.posemb = str(GOLDEN / 'vit_token.npz'), 'sincos2d'
  with pytest.raises(errors.UserError, match='does not fit'):
    train.train_and_evaluate(config, str(tmp_path / 'run'))
  assert not list((tmp_path / 'run').glob('*.*json*'))


def contents(folder):
  return {
    path: path.read_bytes() for path in folder.rglob('*') if path.is_file()
  }


@pytest.mark.slow
def test_fewer_steps_than_done_are_refused_before_writing(
  image_folder, tmp_path
):
  config = tiny(image_folder)
  config.total_epochs = 1.0  # 36 images: 4 steps of 8, or 2 of 16.
  config.warmup_steps, config.eval_every, config.loggers = 1, 0, ()
  train.train_and_evaluate(config, str(tmp_path))
  before = contents(tmp_path)
  for name, value, message in (
    ('batch', 16, r'step 4, but config.total_steps is 2 \(.*total_epochs=1\)'),
    ('total_epochs', 0.5, r'is 2 \(config.total_epochs=0.5\): a run cannot go'),
  ):
    shorter = config.copy_and_resolve_references()
    shorter[name] = value
    with pytest.raises(errors.UserError, match=message):
      train.train_and_evaluate(shorter, str(tmp_path))
    assert contents(tmp_path) == before
  # With equal steps the run has ended; with more it continues.
  config.batch = 8
  assert int(train.train_and_evaluate(config, str(tmp_path)).step) == 4
  config.total_epochs = 1.5
  state = train.train_and_evaluate(config, str(tmp_path))
  assert np.asarray(state.step) == 7
