"""Cross-validation: every image is tested once, the metrics are averaged."""

import json
import statistics

from golden_files import GOLDEN
from processes import call_command
import pytest
from runs import tiny
from runs import tiny_lit

from vit_jax import folds
from vit_jax import sweep
from vit_jax import train as train_lib
from vit_jax.configs import common
from vit_jax.data import sources
from vit_jax.runtime import errors


def test_every_image_is_tested_once(image_folder):
  names = sources.get_source(str(image_folder), 'train').names()
  tested = []
  for train, test in folds.splits('train', 4):
    parts = [
      sources.get_source(str(image_folder), x).names() for x in (train, test)
    ]
    assert sorted(parts[0] + parts[1]) == sorted(names)
    tested += parts[1]
  assert sorted(tested) == sorted(names)


def test_a_part_of_the_images_is_divided():
  assert folds.splits('train[10%:70%]', 3) == [
    ('train[30%:70%]', 'train[10%:30%]'),
    ('train[10%:30%]+train[50%:70%]', 'train[30%:50%]'),
    ('train[10%:50%]', 'train[50%:70%]'),
  ]
  for train, count in (('train[:10]', 2), ('train+test', 2), ('train', 101)):
    with pytest.raises(errors.UserError):
      folds.splits(train, count)


def test_a_holdout_within_the_folds_is_refused_before_any_run(
  image_folder, tmp_path
):
  def never(config, workdir):
    raise AssertionError(f'{workdir} is run.')

  config = tiny(image_folder)
  config.pp.holdout = 'train[90%:]'
  with pytest.raises(errors.UserError) as error:
    folds.cross_validate(config, str(tmp_path), 2, never)
  assert str(error.value).startswith(
    "config.pp.train='train' and config.pp.holdout='train[90%:]' have images"
  )
  config.pp.train = 'train[:90%]'
  with pytest.raises(AssertionError, match='fold=1 is run'):
    folds.cross_validate(config, str(tmp_path), 2, never)


@pytest.mark.parametrize('trainer', ['train', 'contrastive'])
def test_run_files_of_sweeps_can_be_cross_validated(
  trainer, image_folder, captions, tmp_path
):
  """Each fold is then a run as the file without its sweep would start."""
  ran = []

  def stop(config, workdir):
    ran.append(config)
    raise errors.UserError('Enough.')

  one = tiny_lit(captions) if trainer == 'contrastive' else tiny(image_folder)
  config = common.with_sweep(one, (0.1, 0.3)).unlock()
  if trainer == 'contrastive':
    config.model = None  # The weights decide it.
  with pytest.raises(errors.UserError, match='Enough'):
    folds.cross_validate(config, str(tmp_path / 'folds'), 2, stop)
  with pytest.raises(errors.UserError, match='Enough'):
    sweep.sweep(config, str(tmp_path / 'sweep'), stop)
  assert [run.trainer for run in ran] == [trainer] * 3
  assert not any('sweep' in run for run in ran)
  assert [run.base_lr for run in ran] == [one.base_lr, 0.1, 0.3]


def test_folds_of_a_sweep_have_the_rate_of_the_command(image_folder, tmp_path):
  done = call_command(
    'sweep',
    f'--config=configs/sweep.py:{GOLDEN}/vit_token.npz,{image_folder}',
    f'--workdir={tmp_path}',
    '--folds=200',
    '--config.base_lr=0.1',
  )
  assert done.returncode == 1
  assert 'folds=200 of 100 % of the images' in done.stderr


@pytest.mark.slow
def test_metrics_are_averaged_and_finished_folds_stay(image_folder, tmp_path):
  config = tiny(image_folder)
  config.total_steps = config.warmup_steps = 2
  ran = []

  def train(config, workdir):
    ran.append(workdir)
    return train_lib.train_and_evaluate(config, workdir)

  result = folds.cross_validate(config, str(tmp_path), 2, train)
  assert len(ran) == 2
  values = [row['loss_test'] for row in result['folds']]
  assert result['mean']['loss_test'] == statistics.mean(values)
  assert result['deviation']['loss_test'] == statistics.stdev(values)
  assert json.loads((tmp_path / 'folds.json').read_text()) == result
  assert sum(row['examples_test'] for row in result['folds']) == 36
  assert 'accuracy_test' in folds.table(result)
  assert folds.cross_validate(config, str(tmp_path), 2, train) == result
  assert len(ran) == 2  # Nothing ran again.
  config.base_lr = 0.5
  with pytest.raises(errors.UserError, match='has a run of other settings'):
    folds.cross_validate(config, str(tmp_path), 2, train)


@pytest.mark.parametrize(
  ('flag', 'message'),
  [
    ('--base_lr=0.1', '--folds tests each part'),
    ('--config.pp.test=test', '--config.pp.test has no effect with --folds'),
    ('--config.eval_every=1', '--config.eval_every has no effect'),
    (
      '--config.trainer=evaluate',
      "config.trainer is 'evaluate': a sweep needs",
    ),
  ],
)
def test_flags_that_have_no_effect_are_refused(
  image_folder, tmp_path, flag, message
):
  done = call_command(
    'sweep',
    f'--config=tests/run_files/tiny.py:{image_folder}',
    f'--workdir={tmp_path}',
    '--folds=2',
    flag,
  )
  assert done.returncode == 1
  assert message in done.stderr
