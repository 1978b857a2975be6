"""Errors of memory say what to try."""

import jax
import pytest
from run_files import tiny

from vit_jax.runtime import errors
from vit_jax.training import out_of_memory


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
