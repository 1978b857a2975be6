"""Casting weights once and computing in chunks change nothing."""

import functools

from golden_files import GOLDEN
from golden_files import golden_arrays
from golden_files import golden_json
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax import checkpoint
from vit_jax import models
from vit_jax.models import inference

CASES = golden_json('index.json')


def golden(name):
  case = CASES[name]
  model = models.from_config(
    case['config'], num_classes=case.get('num_classes'), dtype='bfloat16'
  )
  params = checkpoint.load(GOLDEN / f'{name}.npz')
  return model, params, golden_arrays(f'{name}.io.npz')['inputs']


@pytest.mark.parametrize('name', ['vit_token', 'mixer', 'hybrid_r_stem'])
def test_cast_weights_changes_no_bit(name):
  model, params, images = golden(name)
  cast = inference.cast_weights(params, 'bfloat16')
  dtypes = {str(x.dtype) for x in jax.tree.leaves(cast)}
  assert dtypes == {'bfloat16', 'float32'}
  apply = lambda params: model.apply({'params': params}, images, train=False)
  np.testing.assert_array_equal(apply(cast), apply(params))
  assert inference.cast_weights(params, 'float32') is params


def test_cast_weights_skips_text_towers():
  kernel = {'kernel': np.ones((2, 2), np.float32)}
  block = {'encoderblock_0': {'MlpBlock_0': {'Dense_0': kernel}}}
  params = {
    'img': {'Transformer': block, 'head': kernel},
    'txt': {'Encoder_0': block, 'Transformer': block},
  }
  cast = inference.cast_weights(params, 'bfloat16')
  assert [str(x.dtype) for x in jax.tree.leaves(cast)] == [
    'bfloat16',
    *['float32'] * 3,
  ]


@pytest.mark.parametrize('size, chunk', [(16, 4), (4, 4), (13, 13), (3, 3)])
def test_apply_in_chunks_equals_whole_batch(size, chunk):
  model, params, images = golden('vit_token')
  images = jnp.asarray(np.resize(images, (size, *images.shape[1:])))
  assert inference._chunk_size(size) == chunk
  got = jax.jit(lambda x: inference.apply(model, params, x))(images)
  apply = jax.jit(functools.partial(model.apply, train=False))
  want = apply({'params': params}, images)
  np.testing.assert_allclose(got, want, atol=1e-2)
