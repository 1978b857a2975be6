"""LoRA: what is trained, what is saved, and that it is what the formula says."""

import jax
import numpy as np
from pictures import make_image_folder
import pytest
from runs import assert_resumes
from runs import flat
from runs import tiny

import vit_jax
from vit_jax import checkpoint
from vit_jax import train
from vit_jax.models import lora
from vit_jax.runtime import errors
from vit_jax.training import evaluate
from vit_jax.training import resolve
from vit_jax.training import tasks

RANK = 2


def get_config(folder, **settings):
  config = tiny(folder)
  config.lora_rank, config.lora_alpha = RANK, 8.0
  config.optimizer, config.optim_dtype = 'adamw', 'float32'
  config.base_lr, config.warmup_steps = 0.01, 0
  config.total_steps = config.eval_every = config.checkpoint_every = 4
  for name, value in settings.items():
    config[name] = value
  return config


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  workdir = tmp_path_factory.mktemp('lora')
  config = get_config(make_image_folder(workdir / 'images'), ema_decay=0.5)
  train.train_and_evaluate(config, str(workdir))
  return workdir


@pytest.mark.slow
def test_evaluating_with_other_settings_of_the_model_warns(run, caplog):
  want = evaluate.evaluate(get_config(run / 'images', ema_decay=0.5), str(run))
  assert 'trained with other settings' not in caplog.text
  config = get_config(run / 'images', ema_decay=0.5, lora_alpha=16.0)
  got = evaluate.evaluate(config, str(run))
  assert (
    'trained with other settings: lora_alpha was 8.0, is 16.0.' in caplog.text
  )
  assert got['loss_test'] != want['loss_test']


@pytest.mark.slow
def test_only_matrices_and_head_are_trained(run):
  config = get_config(run / 'images')
  task = tasks.make(resolve.resolve(config))
  before = task.initial_params(None)
  with np.load(run / 'artifact' / 'lora.npz') as file:
    matrices = dict(file)
  after, first = flat(run), lora.merge(before, config.lora_alpha)
  first = {k: np.asarray(v) for k, v in flatten(first).items()}
  names = {n.rpartition('/')[0] for n in matrices}
  changed = {n for n in first if not np.array_equal(first[n], after[n])}
  assert changed == {f'{n}/kernel' for n in names} | {
    'head/kernel',
    'head/bias',
  }
  assert len(names) == 2 * (4 + 2)  # Blocks, kernels of attention and MLP.
  for name in names:
    a, b = matrices[f'{name}/lora_a'], matrices[f'{name}/lora_b']
    kernel = first[f'{name}/kernel']
    want = kernel + 8 / RANK * (a @ b).reshape(kernel.shape)
    np.testing.assert_allclose(after[f'{name}/kernel'], want, atol=1e-6)
  sizes = jax.tree.leaves(jax.tree.map(np.size, task.stages[0].like.opt_state))
  trained = sum(x.size for x in matrices.values())
  trained += first['head/kernel'].size + first['head/bias'].size
  assert sum(sizes) <= 2 * trained + 10


def flatten(tree):
  from vit_jax.weights import record

  return record.flatten(tree)


@pytest.mark.slow
def test_artifact_and_workdir_predict_the_same(run):
  pixels = np.random.default_rng(0).integers(0, 256, (3, 20, 20, 3), np.uint8)
  one, other, average = (
    vit_jax.load(run / name).logits(pixels)
    for name in ('artifact', '.', 'artifact_ema')
  )
  np.testing.assert_allclose(one, other, atol=1e-6)
  assert not np.allclose(one, average)
  assert not lora.matrices(checkpoint.read(run).params)


@pytest.mark.slow
def test_runs_resume_bit_for_bit(image_folder, tmp_path):
  assert_resumes(get_config(image_folder), tmp_path)


@pytest.mark.slow
def test_scanned_blocks_learn_the_same(image_folder, tmp_path):
  arrays = []
  for scan in (False, True):
    config = get_config(image_folder, scan_layers=scan, total_steps=2)
    config.optimizer, config.stochastic_depth_rate = 'sgd', 0.0
    config.model.transformer.dropout_rate = 0.0
    train.train_and_evaluate(config, str(tmp_path / str(scan)))
    arrays.append(flat(tmp_path / str(scan)))
  for name, x in arrays[0].items():
    np.testing.assert_allclose(x, arrays[1][name], atol=2e-5, err_msg=name)


def test_modules_are_chosen(image_folder):
  config = get_config(image_folder, lora_targets=('value',))
  params = tasks.make(resolve.resolve(config)).initial_params(None)
  names = {n.split('/')[-2] for n in lora.matrices(params)}
  assert names == {'value'}
  with pytest.raises(errors.UserError, match='the model has none of these'):
    lora.add({'head': {'kernel': np.zeros((2, 3))}}, 1, ('mlp',), 0)


def test_frozen_matrices_are_refused(image_folder):
  config = get_config(image_folder, freeze=(r'(?!head/)',))
  with pytest.raises(errors.UserError, match='matrices of config.lora_rank=2'):
    tasks.make(resolve.resolve(config))
  # A stage before may train the head alone.
  both = {'total_steps': 2, 'freeze': (r'(?!head/)',)}, {'total_steps': 2}
  tasks.make(resolve.resolve(get_config(image_folder, stages=both)))
