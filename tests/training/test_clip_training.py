"""Both towers of a pretrained CLIP are trained, on captions."""

import dataclasses

import clips
import jax
from made import assert_same
import numpy as np
import pytest
from runs import run_file

from vit_jax import checkpoint
from vit_jax import train
from vit_jax import zero_shot
from vit_jax.runtime import preemption
from vit_jax.weights import artifact


@pytest.fixture(scope='module')
def clip(tmp_path_factory):
  """The artifact of a small CLIP, whose temperature is too high."""
  folder = tmp_path_factory.mktemp('clip') / 'artifact'
  weights = clips.pair()
  params = {**weights.params, 't': np.log(np.float32([105.0]))}
  artifact.save(folder, dataclasses.replace(weights, params=params))
  return folder


def short(clip, data, **changes):
  """Returns settings of a few steps."""
  config = run_file('configs/clip_folder.py').get_config(f'{clip},{data}')
  config.batch, config.batch_eval, config.report = 16, 8, False
  config.total_steps, config.warmup_steps = 4, 1
  config.base_lr, config.progress_every = 0.01, 1
  config.eval_every, config.checkpoint_every = 4, 2
  config.update(changes)
  return config


def changed(before, after, name):
  """Whether an array of a tower was changed."""
  tower, *path = name.split('/')
  for part in (tower, *path):
    before, after = before[part], after[part]
  return bool(np.any(np.asarray(before) != np.asarray(after)))


NAMES = ('img/projection/kernel', 'img/cls', 'txt/head/kernel', 't')


@pytest.mark.slow
def test_both_towers_are_trained_and_saved(clip, captions, tmp_path):
  before = checkpoint.load(clip)
  train.train_and_evaluate(short(clip, captions), str(tmp_path))
  after = zero_shot.load(str(tmp_path / 'artifact'))
  assert all(changed(before, after.params, name) for name in NAMES)
  assert after.preprocessing == clips.pair().preprocessing
  assert after.vocabulary == str(tmp_path / 'artifact' / 'tokenizer.json')
  assert after.model['image']['projection'] == 12
  # arXiv:2103.00020, Sec. 2.5; `base_lr` alone moves it by less than 5 %.
  assert after.model['temperature_max'] == 100
  assert after.params['t'] == pytest.approx(np.log(100), abs=0.02)
  assert after.params['t'] <= np.log(100) * (1 + 1e-7)
  assert_same(checkpoint.load(tmp_path), after.params)


@pytest.mark.slow
def test_a_locked_tower_keeps_every_bit(clip, captions, tmp_path):
  before = checkpoint.load(clip)
  config = short(clip, captions, lock_image_tower=True, total_steps=2)
  config.scan_layers, config.dtype = True, 'bfloat16'
  train.train_and_evaluate(config, str(tmp_path))
  after = checkpoint.load(tmp_path)
  assert_same(before['img'], after['img'])
  assert changed(before, after, 'txt/head/kernel')


@pytest.mark.slow
def test_resumed_runs_equal_unbroken_ones_without_the_weights(
  clip, captions, tmp_path, monkeypatch
):
  config = short(clip, captions)
  want = train.train_and_evaluate(config, str(tmp_path / 'unbroken'))
  with monkeypatch.context() as patch:
    patch.setattr(preemption.Preemption, 'requested', lambda _, step: step == 3)
    with pytest.raises(SystemExit, match='^0$'):
      train.train_and_evaluate(config, str(tmp_path / 'stopped'))
  config.pretrained = 'gone'
  got = train.train_and_evaluate(config, str(tmp_path / 'stopped'))
  assert_same(
    *(jax.tree.map(np.asarray, (s.params, s.opt_state)) for s in (got, want))
  )
