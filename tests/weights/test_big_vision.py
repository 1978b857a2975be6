"""Plain ViTs of big_vision, with each of its poolings."""

import json

import jax
from made import assert_same
from made import random_weights
from made import VIT
import numpy as np
import pytest

from vit_jax import checkpoint
from vit_jax.models import positions
from vit_jax.runtime import errors
from vit_jax.weights import families
from vit_jax.weights import formats
from vit_jax.weights import record as weights_lib


def saved(params, path, *, stack=False, posemb=True):
  """Writes arrays with the names of big_vision, where only patches have positions."""
  encoder = dict(params['Transformer'])
  embeddings = encoder.pop('posembed_input')['pos_embedding']
  if stack:
    blocks = [encoder.pop(f'encoderblock_{i}') for i in range(3)]
    encoder['encoderblock'] = jax.tree.map(lambda *x: np.stack(x), *blocks)
  theirs = {**params, 'Transformer': encoder}
  if posemb:
    theirs['pos_embedding'] = embeddings[:, 'cls' in params :]
  np.savez(path, **weights_lib.flatten({'params': theirs}))
  return path


@pytest.mark.parametrize('stack', [False, True])
@pytest.mark.parametrize('classifier', ['map', 'token', 'gap'])
def test_every_pooling_is_read(tmp_path, classifier, stack):
  weights = random_weights(VIT, classifier=classifier)
  path = saved(weights.params, tmp_path / 'x.npz', stack=stack)
  again = checkpoint.read(path)
  assert not families.lost(VIT | {'classifier': classifier}, again.model)
  if 'cls' in weights.params:
    posemb = weights.params['Transformer']['posembed_input']['pos_embedding']
    posemb[:, 0] = 0
  assert_same(again.params, weights.params)
  formats.convert(again, str(tmp_path / 'y.npz'), 'npz')
  assert_same(checkpoint.load(tmp_path / 'y.npz'), weights.params)


def test_positions_may_be_in_the_encoder(tmp_path):
  """As in files of big_vision before 2022."""
  weights = random_weights(VIT, classifier='map')
  params = dict(weights.params)
  encoder = dict(params['Transformer'])
  encoder['pos_embedding'] = encoder.pop('posembed_input')['pos_embedding']
  flat = weights_lib.flatten({**params, 'Transformer': encoder})
  np.savez(tmp_path / 'x.npz', **flat)
  assert_same(checkpoint.load(tmp_path / 'x.npz'), weights.params)


@pytest.mark.parametrize('to', ['huggingface', 'timm'])
def test_attention_pooling_is_written_to_all_formats(tmp_path, to):
  weights = random_weights(VIT, classifier='map', num_classes=0)
  path = saved(weights.params, tmp_path / 'x.npz', stack=True)
  formats.convert(checkpoint.read(path), str(tmp_path / 'y'), to)
  assert_same(checkpoint.load(tmp_path / 'y'), weights.params)
  config = json.loads((tmp_path / 'y' / 'config.json').read_text())
  assert config.get('model_type', config.get('global_pool')) in (
    'siglip_vision_model',
    'map',
  )


@pytest.mark.parametrize('stack', [False, True])
def test_computed_positions_are_added(tmp_path, caplog, stack):
  weights = random_weights(VIT, classifier='token')
  path = saved(weights.params, tmp_path / 'x.npz', stack=stack, posemb=False)
  again = checkpoint.read(path)
  assert again.image_shape == (224, 224, 3)
  posemb = again.params['Transformer']['posembed_input']['pos_embedding'][0]
  assert not posemb[0].any()
  np.testing.assert_array_equal(posemb[1:], positions.sincos2d((28, 28), 32))
  assert 'no position embeddings' in caplog.text


def test_rotations_are_not_taken_for_computed_positions(tmp_path):
  weights = random_weights(VIT, num_registers=1, rotary_base=100.0)
  path = saved(weights.params, tmp_path / 'x.npz', posemb=False)
  with pytest.raises(errors.UserError, match='does not hold rotations'):
    checkpoint.read(path)
