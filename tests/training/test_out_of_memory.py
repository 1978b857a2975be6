"""Errors of memory say what to try."""

import jax
import pytest
from run_files import tiny

from vit_jax import train
from vit_jax.evaluation import evaluator
from vit_jax.runtime import errors
from vit_jax.training import evaluate
from vit_jax.training import out_of_memory
from vit_jax.training import stages


def test_advice_names_settings_that_need_less_memory():
  config = tiny.get_config('cifar10')
  error = jax.errors.JaxRuntimeError(
    'RESOURCE_EXHAUSTED: Out of memory while trying to allocate 12.50GiB.\nmore'
  )
  with pytest.raises(errors.UserError) as caught, out_of_memory.advice(config):
    raise error
  assert str(caught.value) == (
    'Out of memory with a batch of 8 in 2 parts on 1 devices (Out of memory'
    ' while trying to allocate 12.50GiB.). Try config.accum_steps=4 or'
    ' config.remat=full or config.batch=4 or a smaller config.pp.crop than'
    ' (16, 24); if it was an evaluation, a smaller config.batch_eval.'
    ' vit-jax plan with the same run file prints what fits.'
  )
  other = jax.errors.JaxRuntimeError('INTERNAL: no')
  with pytest.raises(jax.errors.JaxRuntimeError), out_of_memory.advice(config):
    raise other


def test_advice_is_possible_for_the_model_and_its_images():
  config = tiny.get_config('cifar10')
  axes = {'data': 1, 'fsdp': 1, 'model': 1}
  config.model.transformer = None  # A model without blocks has no `remat`.
  config.pp.cutmix = 1.0  # Mixes the images of a part: it needs two.
  config.update({'batch': 8, 'accum_steps': 2})
  assert out_of_memory.smaller(config, axes, 'cpu') == [
    'accum_steps=4',
    'batch=4',
  ]
  config.accum_steps = 4
  assert out_of_memory.smaller(config, axes, 'cpu') == []


def test_training_without_memory_ends_in_advice(
  image_folder, tmp_path, monkeypatch
):
  def step(state, batch, key):
    raise jax.errors.JaxRuntimeError('RESOURCE_EXHAUSTED: Out of memory.')

  monkeypatch.setattr(stages, 'jit_step', lambda *args: step)
  config = tiny.get_config(str(image_folder))
  with pytest.raises(errors.UserError, match='Try config.accum_steps=4'):
    train.train_and_evaluate(config, str(tmp_path / 'run'))


def test_evaluation_without_memory_ends_in_advice(
  image_folder, tmp_path, monkeypatch
):
  config = tiny.get_config(str(image_folder))
  config.update({'total_steps': 1, 'warmup_steps': 0})
  train.train_and_evaluate(config, str(tmp_path / 'run'))

  def fail(*args, **kwargs):
    raise jax.errors.JaxRuntimeError('RESOURCE_EXHAUSTED: Out of memory.')

  monkeypatch.setattr(evaluator, 'with_average', fail)
  with pytest.raises(errors.UserError, match=r'smaller config\.batch_eval'):
    evaluate.evaluate(config, str(tmp_path / 'run'))
  with pytest.raises(errors.UserError, match=r'smaller config\.batch_eval'):
    train.train_and_evaluate(config, str(tmp_path / 'run'))


def test_smaller_names_settings_for_many_devices():
  config = tiny.get_config('cifar10')
  config.update({'batch': 96, 'accum_steps': 3, 'remat': 'full'})
  config.mesh.data = 4
  axes = {'data': 4, 'fsdp': 2, 'model': 1}
  assert out_of_memory.smaller(config, axes, 'tpu') == [
    'dtype=bfloat16',
    'accum_steps=4',
    'mesh.fsdp=4 config.mesh.data=2',
    'batch=48',
  ]
