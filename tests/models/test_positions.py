"""Fixed position embeddings: their values, and that they stay."""

import math

import jax
import numpy as np
import pytest
from run_files import tiny

from vit_jax.configs import arguments
from vit_jax.configs import resolved
from vit_jax.data import preprocessing
from vit_jax.models import positions
from vit_jax.runtime import errors
from vit_jax.training import freeze
from vit_jax.training import resolve
from vit_jax.training import tasks
from vit_jax.weights import record as weights_lib


def test_sincos2d_has_sines_and_cosines_of_both_coordinates():
  got = positions.sincos2d((3, 5), 16)
  assert got.shape == (15, 16)
  for row in range(3):
    for column in range(5):
      want = [
        f(place / 10_000 ** (i / 3))
        for place in (column, row)
        for f in (math.sin, math.cos)
        for i in range(4)
      ]
      np.testing.assert_allclose(got[row * 5 + column], want, atol=1e-6)
  with pytest.raises(ValueError, match='width is 18'):
    positions.sincos2d((3, 5), 18)


def test_rotations_have_a_quarter_of_each_width():
  for width in range(4, 2049, 4):
    for table in positions._rotations((1, 2), 100.0, width):
      assert table.shape == (2, width)


def test_sincos2d_positions_are_set_and_not_trained(image_folder):
  config = tiny.get_config(str(image_folder))
  config.posemb = 'sincos2d'
  task = tasks.make(resolve.resolve(config))
  params = task.initial_params(None)
  embeddings = params['Transformer']['posembed_input']['pos_embedding'][0]
  assert not np.any(embeddings[0])  # Of the class token.
  np.testing.assert_array_equal(embeddings[1:], positions.sincos2d((2, 3), 16))
  trained, frozen = freeze.split(params, task.stages[0].freeze)
  assert set(frozen) == {'Transformer'}
  assert jax.tree.map(np.shape, frozen['Transformer']) == {
    'posembed_input': {'pos_embedding': (1, 7, 16)}
  }
  assert 'posembed_input' not in trained['Transformer']


def test_are_sincos2d_recognises_fixed_positions():
  fixed = positions.sincos2d((3, 5), 16)
  assert positions.are_sincos2d(fixed)
  assert positions.are_sincos2d(fixed.astype(np.float16).astype(np.float32))
  assert not positions.are_sincos2d(fixed + 0.02)
  assert not positions.are_sincos2d(fixed[:14])


def test_fine_tuning_resets_fixed_positions_and_refuses_learned_ones(
  image_folder,
):
  config = tiny.get_config(str(image_folder)).unlock()
  config.posemb = 'sincos2d'
  make = lambda config: tasks.make(
    resolve.resolve(config, get_pretrained=lambda _: (None, {}))
  )
  params = jax.tree.map(np.array, make(config).initial_params(None))
  weights = weights_lib.Weights(
    params=params,
    model=arguments.of_saved_model(resolved.with_defaults(config)),
    class_names=['a', 'b', 'c'],
    preprocessing=preprocessing.Preprocessing((16, 24), 3),
    source='weights.npz',
  )
  config.pretrained = 'weights.npz'
  config.pp.crop = (32, 24)
  task = make(config)
  got = task.initial_params(weights)
  embeddings = got['Transformer']['posembed_input']['pos_embedding'][0]
  # Those of the new grid, not those of the file made larger.
  np.testing.assert_array_equal(embeddings[1:], positions.sincos2d((4, 3), 16))
  assert not np.any(embeddings[0])
  params['Transformer']['posembed_input']['pos_embedding'] += 0.1
  with pytest.raises(errors.UserError, match=r'weights.npz has learned pos'):
    task.initial_params(weights)
