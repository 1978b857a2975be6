"""Features of each layer of a trained model, and its attention."""

from golden_files import GOLDEN
import jax
import jax.numpy as jnp
import numpy as np
from pictures import picture
import pytest

import vit_jax
from vit_jax import models
from vit_jax import predictor as predictor_lib
from vit_jax.data.augmentation import augment
from vit_jax.data.augmentation import transforms
from vit_jax.runtime import errors

TOKEN = GOLDEN / 'vit_token.npz'


@pytest.fixture(scope='module')
def token():
  return vit_jax.load(TOKEN, batch_size=2)


def prepared(image, size=(32, 32)):
  image = transforms.eval_image(image, size)
  return augment.normalize(transforms.stack([image]))


def tokens_by_hand(module, params, x, layers):
  """The encoder's steps written out, with the modules themselves."""
  depth = module.transformer['num_layers']
  short = {**module.transformer, 'num_layers': layers}
  cut = module.clone(
    num_classes=None,
    transformer=short,
    classifier='token_unpooled',
    # The last LayerNorm, which the output of a layer in the middle lacks.
    fc_norm=layers < depth,
  )
  params = {**params, 'fc_norm': params['Transformer']['encoder_norm']}
  if layers == depth:
    return cut.apply({'params': params}, x, train=False)
  encoder = models.Encoder(**short, final_norm=False, name='Transformer')
  embedded = cut.clone(transformer=None, classifier='unpooled', fc_norm=False)
  y = embedded.apply({'params': params}, x, train=False)
  cls = jnp.tile(params['cls'], (len(y), 1, 1))
  y = jnp.concatenate([cls, y], axis=1)
  return encoder.apply({'params': params['Transformer']}, y, train=False)


def test_features_are_what_the_head_sees(token):
  images = [picture(seed) for seed in range(3)]
  features = token.features(images)
  head = token.weights.params['head']
  rows = np.stack([row for _, row in token.probabilities(images)])
  logits = features @ head['kernel'] + head['bias']
  np.testing.assert_allclose(jax.nn.softmax(logits), rows, atol=1e-6)
  assert token.features([]).shape == (0, 32)


@pytest.mark.slow
def test_features_of_each_layer(token):
  x = prepared(picture())
  weights, depth = (
    token.weights,
    token.weights.model['transformer']['num_layers'],
  )
  by_hand = jax.jit(tokens_by_hand, static_argnums=(0, 3))
  for layer, last in ((1, 1), (2, 2), (None, depth)):
    want = by_hand(weights.module(), dict(weights.params), x, last)
    for pooling, pooled in (
      ('tokens', want),
      ('cls', want[:, 0]),
      ('gap', want[:, 1:].mean(axis=1)),
    ):
      got = token.features(picture(), layer=layer, pooling=pooling)
      np.testing.assert_allclose(got, pooled, atol=1e-5)
  np.testing.assert_allclose(
    token.features(picture(), pooling='cls'),
    token.features(picture()),
    atol=1e-6,
  )


@pytest.mark.parametrize(
  ('file', 'kwargs', 'message'),
  [
    ('vit_token', {'layer': 4}, 'layer is 4; the model has 3'),
    ('vit_token', {'layer': 0}, 'layer is 0; the model has 3'),
    ('vit_token', {'pooling': 'mean'}, "pooling is 'mean', must be one of"),
    ('vit_gap', {'pooling': 'cls'}, 'has no class token'),
  ],
)
def test_missing_features_are_refused(file, kwargs, message):
  predictor = vit_jax.load(GOLDEN / f'{file}.npz')
  with pytest.raises(errors.UserError, match=message):
    predictor.features(picture(), **kwargs)


def test_mixers_have_features_and_no_attention():
  mixer = vit_jax.load(GOLDEN / 'mixer.npz')
  pooled = mixer.features(picture(), pooling='gap')
  np.testing.assert_allclose(mixer.features(picture()), pooled, atol=1e-5)
  with pytest.raises(errors.UserError, match='has no attention'):
    mixer.attention(picture())


def test_attention_rows_sum_to_1_in_the_order_of_layers(token):
  weights = token.attention([picture(), picture(1)])
  transformer = token.weights.model['transformer']
  layers, heads = transformer['num_layers'], transformer['num_heads']
  length = 1 + token.grid[0] * token.grid[1]
  assert weights.shape == (2, layers, heads, length, length)
  np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-5)
  # A second layer without parameters attends evenly; the first stays.
  one = vit_jax.load(TOKEN)
  block = dict(one.weights.params['Transformer']['encoderblock_1'])
  block = jax.tree.map(np.zeros_like, block)
  one.weights.params['Transformer']['encoderblock_1'] = block
  flat = predictor_lib.Predictor(one.weights).attention(picture())[0]
  np.testing.assert_allclose(flat[0], weights[0, 0], atol=1e-6)
  np.testing.assert_allclose(flat[1], 1 / length, atol=1e-6)
