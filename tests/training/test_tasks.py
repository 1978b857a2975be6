"""Runs on several classes and on numbers, from a table to a page."""

import json

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
from pictures import make_table
from processes import call_command
import pytest
from runs import assert_resumes
from runs import rows as metric_rows
from runs import tiny

from benchmarks import check_scores
import vit_jax
from vit_jax import checkpoint
from vit_jax import train
from vit_jax.configs import labels
from vit_jax.data import sources
from vit_jax.data.augmentation import mixing
from vit_jax.evaluation import multilabel
from vit_jax.models import losses
from vit_jax.reporting import report
from vit_jax.runtime import errors
from vit_jax.training import evaluate as run_evaluation
from vit_jax.weights import formats

COUNT = 24


def get_config(table, **columns):
  config = tiny(table)
  config.columns.update(columns)
  config.total_steps = config.checkpoint_every = 4
  config.eval_every = config.progress_every = 2
  config.pp.train, config.pp.test = 'train[:50%]', 'train[75%:]'
  config.optimizer, config.optim_dtype = 'adamw', 'float32'
  config.base_lr, config.warmup_steps = 0.01, 0
  config.ema_decay = 0.5
  return config


@pytest.fixture(scope='module')
def several(tmp_path_factory):
  """Table, workdir of a run on several classes, and its settings."""
  root = tmp_path_factory.mktemp('several')
  table = make_table(root / 'images', ['labels'], COUNT)
  config = get_config(table)
  config.pp.holdout = 'train[50%:75%]'
  config.class_weights, config.pp.mixup = 'balanced', 0.2
  train.train_and_evaluate(config, str(root / 'run'))
  return table, root / 'run', config


@pytest.fixture(scope='module')
def numbers(tmp_path_factory):
  """Table, workdir of a run on two numbers, and its settings."""
  root = tmp_path_factory.mktemp('numbers')
  table = make_table(root / 'images', ['bright', 'red'], COUNT)
  config = get_config(table, target='red,bright', units='V,lx')
  train.train_and_evaluate(config, str(root / 'run'))
  return table, root / 'run', config


def evaluate(run, table, *flags):
  done = call_command(
    'evaluate',
    f'--model={run}',
    f'--dataset={table}',
    '--split=train[75%:]',
    *flags,
  )
  return json.loads(done.stdout)


@pytest.mark.parametrize('task', ['several', 'numbers'])
def test_scores_equal_those_of_scikit_learn(task, request, tmp_path):
  table, run, _ = request.getfixturevalue(task)
  rows, result = tmp_path / 'rows.jsonl', tmp_path / 'result.json'
  evaluate(run, table, f'--predictions={rows}', f'--output={result}')
  found = check_scores.compare(rows, result)
  assert len(found) == {'several': 2 + 3 * 4, 'numbers': 4}[task]
  for name, ours, theirs in found:
    assert ours == pytest.approx(theirs, abs=1e-6), name


def test_several_classes_are_learned_and_evaluated(several):
  table, run, _ = several
  last = metric_rows(run)[-1]
  assert {'map_test', 'f1_test', 'map_test_ema', 'loss_test'} <= set(last)
  saved = json.loads((run / 'config.json').read_text())
  assert [saved[x] for x in ('task', 'loss', 'best_metric')] == [
    'multilabel',
    'sigmoid',
    'map_test',
  ]
  weights = checkpoint.read(run / 'artifact')
  assert weights.task == labels.MULTILABEL
  assert len(weights.thresholds) == 3
  for name in (
    'artifact',
    '.',
  ):  # As measured in training, thresholds included.
    found = evaluate(run / name, table)
    for metric in ('map_test', 'f1_test'):
      assert found[metric] == pytest.approx(last[metric], abs=1e-6)


def test_thresholds_come_from_held_out_images(several):
  _, run, _ = several
  weights = checkpoint.read(run / 'artifact')
  model = vit_jax.load(run / 'artifact')
  source = sources.get_source(str(several[0]), 'train[50%:75%]')
  p = np.stack([row for _, row in model.probabilities(source)])
  want = multilabel.best_thresholds(p, source.labels())
  assert weights.thresholds == pytest.approx(want, abs=1e-5)


def test_predictions_of_several_classes(several, tmp_path):
  table, run, _ = several
  image, artifact = table.parent / '0.png', run / 'artifact'
  done = call_command('predict', f'--model={artifact}', '--json', str(image))
  found = json.loads(done.stdout)['predictions']
  [(_, p)] = vit_jax.load(artifact).probabilities(str(image))
  weights = checkpoint.read(artifact)
  rows = zip(weights.class_names, p, weights.thresholds, strict=True)
  want = {name for name, x, limit in rows if x >= limit}
  assert {row['class'] for row in found} == want
  output = tmp_path / 'rows.jsonl'
  evaluate(run, table, f'--predictions={output}')
  rows = [json.loads(line) for line in output.read_text().splitlines()]
  assert all(isinstance(row['label'], list) for row in rows)
  assert len(rows) == COUNT // 4


def test_numbers_are_learned_and_predicted_in_their_units(numbers):
  table, run, _ = numbers
  last = metric_rows(run)[-1]
  assert {'mae_test', 'rmse_test', 'r2_test', 'spearman_test'} <= set(last)
  for name in ('artifact', '.'):
    found = evaluate(run / name, table)
    for metric in ('mae_test', 'rmse_test', 'r2_test'):
      assert found[metric] == pytest.approx(last[metric], rel=1e-4)
    assert found['numbers']['red']['unit'] == 'V'
  image = str(table.parent / '0.png')
  done = call_command('predict', f'--model={run / "artifact"}', '--csv', image)
  lines = done.stdout.splitlines()
  assert lines[0] == 'image,name,value,unit'
  assert [line.split(',')[1] for line in lines[1:]] == ['red', 'bright']
  [prediction] = vit_jax.load(run).predict(image)
  assert float(lines[1].split(',')[2]) == pytest.approx(
    prediction[0][1], rel=1e-4
  )
  done = call_command('predict', f'--model={run}', '--sort=unsure', image)
  assert done.returncode == 1
  assert 'do not tell how sure' in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize('task', ['several', 'numbers'])
def test_runs_resume_bit_for_bit(task, tmp_path, request):
  *_, config = request.getfixturevalue(task)
  with config.unlocked():
    again = config.copy_and_resolve_references()
  assert_resumes(again, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize('task', ['several', 'numbers'])
def test_pages_show_what_was_learned(task, request):
  _, run, _ = request.getfixturevalue(task)
  text = report.of_workdir(str(run)).read_text()
  titles = {
    'several': ('mean average precision', 'Nearest to a threshold'),
    'numbers': ('R²', 'red [V]', 'Largest errors'),
  }
  assert all(title in text for title in titles[task])


@pytest.mark.parametrize('to', ['huggingface', 'timm'])
@pytest.mark.parametrize('task', ['several', 'numbers'])
def test_other_formats_keep_the_task(task, to, tmp_path, request):
  _, run, _ = request.getfixturevalue(task)
  weights = checkpoint.read(run / 'artifact')
  formats.convert(weights, str(tmp_path / 'out'), to)
  again = checkpoint.read(tmp_path / 'out')
  for field in ('task', 'thresholds', 'units', 'loss', 'class_names'):
    one, other = getattr(weights, field), getattr(again, field)
    assert list(one) == list(other), field
  if to == 'huggingface':
    saved = json.loads((tmp_path / 'out' / 'config.json').read_text())
    kind = {'several': 'multi_label_classification', 'numbers': 'regression'}
    assert saved['problem_type'] == kind[task]


@pytest.mark.slow
def test_a_temperature_is_fitted_to_held_out_images(image_folder, tmp_path):
  config = tiny(image_folder)
  config.total_steps, config.warmup_steps = 1, 0
  config.pp.train, config.pp.holdout = 'train[:60%]', 'train[60%:]'
  train.train_and_evaluate(config, str(tmp_path))
  weights = checkpoint.read(tmp_path / 'artifact')
  assert weights.temperature != 1
  assert checkpoint.read(tmp_path).temperature == weights.temperature
  model = vit_jax.load(tmp_path / 'artifact')
  pixels = np.zeros((20, 20, 3), np.uint8)
  [(_, p)] = model.probabilities(pixels)
  logits = model.logits(pixels)[0] / weights.temperature
  want = np.exp(logits) / np.exp(logits).sum()
  np.testing.assert_allclose(p, want, rtol=1e-5)


@pytest.mark.parametrize(
  ('settings', 'message'),
  [
    ({'loss': 'softmax'}, "config.loss is 'softmax', must be one of"),
    ({'best_metric': 'accuracy_test'}, "must be one of ('map_test'"),
    ({'label_smoothing': 0.1}, 'the task is multilabel, which it does not'),
    ({'pp.shots': 2}, 'config.pp.shots is 2, but the task'),
    ({'pp.holdout': 'train[:10%]'}, 'have images in common'),
    ({'task': 'regression'}, "no column 'target', only image, labels"),
  ],
)
def test_settings_of_other_tasks_are_refused(
  several, tmp_path, settings, message
):
  config = get_config(several[0])
  for name, value in settings.items():
    group, _, field = name.rpartition('.')
    (config[group] if group else config)[field] = value
  with pytest.raises(errors.UserError) as e:
    train.train_and_evaluate(config, str(tmp_path / 'run'))
  assert message in str(e.value)
  assert not list((tmp_path / 'run').glob('*.json'))


def test_held_out_images_of_arrays_must_be_others(tmp_path):
  config = get_config('digits')
  config.pp.train, config.pp.test, config.pp.holdout = (
    'train',
    'test',
    'train[90%:]',
  )
  with pytest.raises(errors.UserError, match='images in common'):
    train.train_and_evaluate(config, str(tmp_path / 'run'))


def test_a_model_of_another_task_is_not_evaluated(
  numbers, image_folder, capsys
):
  done = call_command(
    'evaluate', f'--model={numbers[1]}', f'--dataset={image_folder}'
  )
  assert done.returncode == 1
  assert 'The task of the model is regression' in done.stderr


def test_a_number_without_labels_is_not_scored(numbers):
  table, run, _ = numbers
  done = call_command(
    'evaluate', f'--model={run}', f'--dataset={table}', '--target_column=red'
  )
  assert done.returncode == 1
  assert 'labelled with red, the model also predicts bright' in done.stderr


def test_a_run_is_evaluated_with_the_scale_of_its_numbers(numbers):
  _, run, config = numbers
  assert run_evaluation.evaluate(config, str(run))['step'] == 4
  other = ml_collections.ConfigDict(config)
  other.pp.train = 'train[:25%]'
  with pytest.raises(errors.UserError, match='in training .* Set config.pp'):
    run_evaluation.evaluate(other, str(run))


def test_losses_equal_formulas():
  logits = jnp.array([[2.0, -1.0, 0.5], [0.0, 3.0, -2.0]])
  marks = jnp.array([[1.0, 0, 1], [0, 0, 1]])
  p = 1 / (1 + np.exp(-logits))
  weights = np.float32([1, 2, 3])
  terms = weights * marks * np.log(p) + (1 - marks) * np.log(1 - p)
  np.testing.assert_allclose(
    losses.multilabel_cross_entropy(logits, marks, weights),
    -terms.sum(axis=1),
    rtol=1e-5,
  )
  mean, std = np.float32([1, 2, 3]), np.float32([2, 1, 4])
  z = logits - (marks - mean) / std
  want = {
    'l1': np.abs(z),
    'l2': z**2 / 2,
    'huber': np.where(np.abs(z) < 1, z**2 / 2, np.abs(z) - 0.5),
  }
  for name, values in want.items():
    found = losses.of_numbers(name, mean, std)(logits, marks)
    np.testing.assert_allclose(found, values.mean(axis=1), rtol=1e-5)


def test_images_of_several_classes_are_mixed():
  marks = jnp.array([[1.0, 1, 0], [0, 0, 0], [0, 0, 1]])
  images = jnp.ones((3, 4, 4, 3))
  _, targets = mixing.Mix(3, mixup=1.0)(jax.random.key(0), images, marks)
  own = float(targets[0, 0])
  assert 0.5 <= own < 1
  want = own * marks + (1 - own) * np.roll(marks, 1, axis=0)
  np.testing.assert_allclose(targets, want, rtol=1e-6)
