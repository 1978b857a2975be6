"""Plain ViTs of big_vision, with each of its poolings and sizes."""

import json

import jax
from made import assert_same
from made import random_weights
from made import VIT
import numpy as np
import pytest

from vit_jax import checkpoint
from vit_jax import models
from vit_jax.models import positions
from vit_jax.runtime import errors
from vit_jax.weights import checks
from vit_jax.weights import families
from vit_jax.weights import formats
from vit_jax.weights import npz
from vit_jax.weights import record as weights_lib
from vit_jax.weights import to_huggingface
from vit_jax.weights.timm import to_timm

# Width, depth, mlp and heads of models/vit.py in google-research/big_vision, from
# arXiv:2106.04560, Table 2; So400m is of arXiv:2305.13035.
SIZES = {
  'So400m': (1152, 27, 4304, 16),
  'g': (1408, 40, 6144, 16),
  'G': (1664, 48, 8192, 16),
}


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


def of_size(size, classifier, depth, num_classes):
  """Returns what a file with 14x14 patches has; its arrays take no memory."""
  width, _, mlp_dim, num_heads = SIZES[size]
  config = {
    'patches': {'size': (14, 14)},
    'hidden_size': width,
    'transformer': {
      'num_layers': depth,
      'mlp_dim': mlp_dim,
      'num_heads': num_heads,
    },
    'classifier': classifier,
  }
  module = models.from_config(config, num_classes=num_classes)
  params = models.abstract_params(module, (224, 224, 3))
  params = jax.tree.map(
    lambda x: np.broadcast_to(np.float32(0), x.shape), params
  )
  moved = dict(params['Transformer'])
  posemb = moved.pop('posembed_input')['pos_embedding']
  posemb = posemb[:, 'cls' in params :]
  theirs = {**params, 'Transformer': moved, 'pos_embedding': posemb}
  return weights_lib.flatten({'params': theirs})


@pytest.mark.parametrize(
  'size, classifier, num_classes, in_transformers',
  [
    ('So400m', 'map', None, 'SiglipVisionModel'),
    ('g', 'gap', 7, 'SiglipForImageClassification'),
    ('G', 'token', 7, 'ViTForImageClassification'),
  ],
)
def test_large_vits_are_written_to_all_formats(
  size, classifier, num_classes, in_transformers
):
  width, _, mlp_dim, num_heads = SIZES[size]
  flat = of_size(size, classifier, 1, num_classes)
  weights = npz.described(flat, 'model')
  checks.check(weights)
  encoder = weights.model['transformer']
  assert (encoder['mlp_dim'], encoder['num_heads']) == (mlp_dim, num_heads)
  assert weights.image_shape == (224, 224, 3)
  arrays, files = to_huggingface.export(weights)
  assert files['config.json']['architectures'] == [in_transformers]
  arrays, files = to_timm.export(weights)
  sizes = files['config.json']['model_args']
  # As `Mlp` of timm computes it.
  assert int(width * sizes['mlp_ratio']) == mlp_dim
  assert arrays['blocks.0.mlp.fc1.weight'].shape == (mlp_dim, width)


@pytest.mark.parametrize('size', SIZES)
def test_large_vits_are_known_by_their_arrays(size):
  width, depth, mlp_dim, num_heads = SIZES[size]
  flat = of_size(size, 'map', 1, None)
  first = {k: x for k, x in flat.items() if '/encoderblock_0/' in k}
  for i in range(1, depth):
    flat |= {k.replace('_0/', f'_{i}/', 1): x for k, x in first.items()}
  # Not checked against the model: tracing so many blocks takes seconds.
  weights = npz.described(flat, 'model')
  assert weights.spec.width == width
  assert dict(weights.model['transformer']) == {
    'mlp_dim': mlp_dim,
    'num_heads': num_heads,
    'num_layers': depth,
    'attention_dropout_rate': 0.0,
    'dropout_rate': 0.0,
  }
  assert weights.spec.pooling == 'map'
  assert weights.image_shape == (224, 224, 3)
