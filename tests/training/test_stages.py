"""Stages run in order, each with its own optimizer, and resume."""

import json
import math

import jax
import numpy as np
import pytest
from run_files import tiny

from vit_jax import checkpoint
from vit_jax import train
from vit_jax.configs import resolved
from vit_jax.configs import validate
from vit_jax.runtime import errors
from vit_jax.training import evaluate
from vit_jax.training import freeze
from vit_jax.training import loop
from vit_jax.training import resolve
from vit_jax.training import tasks
from vit_jax.weights import artifact

STAGES = (
  {'total_steps': 4, 'base_lr': 0.5, 'freeze': (r'(?!head/)',)},
  {'total_steps': 4, 'base_lr': 0.01, 'optimizer': 'adamw', 'warmup_steps': 2},
)


def get_config(folder, **settings):
  config = tiny.get_config(str(folder))
  config.update(
    {
      'optimizer': 'sgd',
      'warmup_steps': 1,
      'accum_steps': 1,
      'total_steps': 8,
      'stages': STAGES,
      'progress_every': 1,
      'eval_every': 4,
      'checkpoint_every': 2,
      'ema_decay': 0.9,
    }
    | settings
  )
  return config


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  """Returns (images, workdir, last state) of a run of two stages."""
  from pictures import make_image_folder

  root = tmp_path_factory.mktemp('stages')
  folder = make_image_folder(root / 'images')
  (root / 'run').mkdir()
  state = train.train_and_evaluate(
    get_config(folder, keep_checkpoints=9), str(root / 'run')
  )
  return folder, root / 'run', state


def leaves_equal(a, b):
  return [
    bool(np.array_equal(x, y))
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
  ]


@pytest.mark.slow
def test_first_stage_trains_only_the_head(finished):
  _, workdir, _ = finished
  old, half, new = (
    checkpoint.read(workdir / 'checkpoints' / step).params
    for step in ('2', '4', '8')
  )
  for name, params in half.items():
    same = leaves_equal(params, old[name])
    assert not any(same) if name == 'head' else all(same)
  assert not any(leaves_equal(new['Transformer'], half['Transformer']))


@pytest.mark.slow
def test_logs_learning_rates_of_each_stage(finished):
  lines = (finished[1] / 'metrics.jsonl').read_text().splitlines()
  rates = [r['lr'] for r in map(json.loads, lines) if 'lr' in r]
  np.testing.assert_allclose(
    rates[:5], [0.0, 0.5, 0.5 * 0.75, 0.5 * 0.25, 0.0], atol=1e-6
  )
  np.testing.assert_allclose(rates[5:], [0.005, 0.01, 0.005], atol=1e-6)


def test_learning_rate_equals_rate_used_by_step(image_folder):
  stages = (
    {'total_steps': 2, 'base_lr': 0.5},
    {'total_steps': 3, 'base_lr': 0.1, 'warmup_steps': 2},
  )
  config = get_config(
    image_folder, stages=stages, momentum=0.0, grad_norm_clip=0.0
  )
  task = tasks.make(resolve.resolve(config))
  gradient = {'head': {'bias': np.ones(4, np.float32)}}
  moved, logged = [], []
  for stage in task.stages:
    opt_state = stage.tx.init(gradient)
    for step in range(stage.before + 1, stage.last + 1):
      updates, opt_state = stage.tx.update(gradient, opt_state, gradient)
      moved.append(-updates['head']['bias'][0])
      logged.append(stage.learning_rate(step))
  np.testing.assert_allclose(logged, moved, rtol=1e-6)
  np.testing.assert_allclose(logged[2:], [0, 0.05, 0.1], rtol=1e-6)


def test_layer_decay_counts_frozen_blocks(image_folder):
  config = get_config(
    image_folder,
    stages=(),
    warmup_steps=0,
    grad_norm_clip=0.0,
    layer_decay=0.5,
    freeze=('Transformer/encoderblock_1/',),
  )
  task = tasks.make(resolve.resolve(config))
  (stage,) = task.stages
  trained, frozen = freeze.split(stage.like.params, stage.freeze)
  assert {*frozen['Transformer']} == {'encoderblock_1'}
  ones = jax.tree.map(lambda x: np.ones(x.shape, np.float32), trained)
  updates, _ = stage.tx.update(ones, stage.tx.init(ones), ones)
  moved = {
    'head': updates['head']['bias'],
    'block': updates['Transformer']['encoderblock_0']['LayerNorm_0']['bias'],
    'first': updates['cls'],
  }
  moved = {name: -x.ravel()[0] / config.base_lr for name, x in moved.items()}
  assert moved == pytest.approx({'head': 1, 'block': 0.25, 'first': 0.125})


@pytest.mark.slow
@pytest.mark.parametrize('step', [4, 6])
def test_run_resumes_from_any_stage(finished, tmp_path, monkeypatch, step):
  folder, _, want = finished

  class StopError(Exception):
    pass

  save = loop.state_lib.Saver.save

  def stop_after(self, state, metrics=None):
    save(self, state, metrics)
    if int(state.step) == step:
      raise StopError

  with monkeypatch.context() as patch:
    patch.setattr(loop.state_lib.Saver, 'save', stop_after)
    with pytest.raises(StopError):
      train.train_and_evaluate(get_config(folder), str(tmp_path))
  got = train.train_and_evaluate(get_config(folder), str(tmp_path))
  assert all(leaves_equal(got, want))


@pytest.mark.slow
def test_evaluates_and_saves_moving_average(finished):
  folder, workdir, state = finished
  metrics = evaluate.evaluate(get_config(folder), str(workdir))
  assert metrics['loss_test'] != metrics['loss_test_ema']
  raw, averaged = (
    artifact.load(workdir / name) for name in ('artifact', 'artifact_ema')
  )
  assert all(leaves_equal(raw.params, artifact.to_numpy(state.params)))
  assert all(leaves_equal(averaged.params, artifact.to_numpy(state.ema)))
  assert raw.info['metrics']['loss_test_ema'] == pytest.approx(
    metrics['loss_test_ema'], rel=1e-5
  )
  ended = [
    (workdir / name / 'model.npz').stat().st_mtime_ns
    for name in ('artifact_ema', 'artifact')
  ]
  assert ended == sorted(ended)  # Who waits for the artifact finds both.


def test_epochs_become_steps():
  config = get_config('images', stages=(), total_epochs=3.0, batch=8)
  config.eval_every_epochs = 0.5
  config.warmup_epochs = 0.0
  config = resolved.in_steps(config, 36)
  got = (config.total_steps, config.eval_every, config.warmup_steps)
  assert got == (14, 3, 0)
  config = get_config(
    'images', stages=({'total_epochs': 2}, {'total_steps': 3}), batch=8
  )
  config = resolved.in_steps(config, 36)
  assert config.total_steps == 9 + 3
  assert [s.total_steps for s in resolved.stages(config)] == [9, 3]
  stages = ({'total_steps': 5}, {'base_lr': 0.1}, {})
  config = get_config('images', stages=stages, total_steps=7)
  for _ in range(2):
    config = resolved.in_steps(config, 36)
    assert config.total_steps == 5 + 7 + 7
    assert [s.total_steps for s in resolved.stages(config)] == [5, 7, 7]


def test_the_last_interval_in_epochs_ends_with_the_run():
  for batch in range(1, 60):
    config = get_config('images', stages=(), total_epochs=6.0, batch=batch)
    config.eval_every_epochs, config.checkpoint_every_epochs = 2.0, 0.1
    config = resolved.in_steps(config, 500)
    assert math.ceil(config.total_steps / config.eval_every) == 3, batch
    assert math.ceil(config.total_steps / config.checkpoint_every) <= 60, batch
  config.eval_every_epochs, config.checkpoint_every_epochs = 0.0, 1e-9
  config = resolved.in_steps(config, 500)
  assert (config.eval_every, config.checkpoint_every) == (0, 1)
  config.eval_every_epochs, config.batch = 0.07, 1
  assert 0.07 * 100 > 7
  assert resolved.in_steps(config, 100).eval_every == 7


def test_epochs_of_a_stage_that_are_none_leave_its_steps():
  stages = (
    {'total_steps': 9, 'total_epochs': None, 'warmup_steps': 2},
    {'total_steps': 9, 'warmup_epochs': None, 'cooldown_epochs': None},
  )
  config = get_config('images', stages=stages, warmup_steps=4, cooldown_steps=3)
  got = resolved.stages(resolved.in_steps(config, 36))
  assert [s.total_steps for s in got] == [9, 9]
  assert [s.warmup_steps for s in got] == [2, 4]
  assert got[1].cooldown_steps == 3


def test_steps_on_the_command_line_replace_epochs():
  config = get_config('images', stages=(), total_epochs=3.0, total_steps=9)
  config.warmup_epochs = 1.0
  in_steps = lambda given: resolved.in_steps(
    resolved.steps_first(config, given), 36
  )
  assert in_steps(()).total_steps == 14
  got = in_steps(('total_steps', 'batch'))
  assert (got.total_steps, got.warmup_steps) == (9, 4)
  assert in_steps(('total_steps', 'total_epochs')).total_steps == 14


@pytest.mark.slow
def test_run_lasts_its_epochs(image_folder, tmp_path):
  state = train.train_and_evaluate(
    get_config(
      image_folder, stages=(), total_epochs=0.5, total_steps=None, eval_every=0
    ),
    str(tmp_path),
  )
  assert int(state.step) == 2  # 36 images in batches of 8.


@pytest.mark.parametrize(
  'stages, message',
  [
    (({'total_steps': 4, 'batch': 8},), "'batch' in stage 1, which is not one"),
    (({'base_lr': 1.0},), r'stage 1: total_steps must be set'),
    (({'total_steps': 5}, {'total_steps': 0}), r'stage 2: total_steps is 0'),
  ],
)
def test_refuses_wrong_stages(stages, message):
  config = get_config('images', stages=stages, total_steps=None)
  with pytest.raises(errors.UserError, match=message):
    validate.validate(config)
