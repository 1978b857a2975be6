"""Our layers compute what Flax's do, and in bfloat16 only the products."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from vit_jax import models
from vit_jax.models import arithmetic
from vit_jax.models import attention as attention_lib
from vit_jax.models import layers
from vit_jax.models import parts
from vit_jax.training import update

SPECS = {  # Every product of the models, with small sizes.
  'bmk,kf->bmf': ((2, 3, 4), (4, 5)),
  'bld,de->ble': ((2, 3, 4), (4, 8)),
  'blk,kd->bld': ((2, 3, 4), (4, 6)),
  'blnh,bmnh->bnlm': ((2, 3, 2, 4), (2, 5, 2, 4)),
  'bnlm,bmnh->blnh': ((2, 2, 3, 5), (2, 5, 2, 4)),
}


def normal(seed, shape):
  return jnp.asarray(
    np.random.RandomState(seed).normal(size=shape), jnp.float32
  )


def dots(jaxpr):
  """Yields the products of a program, those inside of others too."""
  for equation in jaxpr.eqns:
    if equation.primitive.name == 'dot_general':
      yield equation
    for value in equation.params.values():
      inner = getattr(value, 'jaxpr', value)
      if hasattr(inner, 'eqns'):
        yield from dots(inner)


@pytest.mark.parametrize('spec', SPECS)
def test_bfloat16_products_and_their_gradients(spec):
  x, y = (normal(i, shape) for i, shape in enumerate(SPECS[spec]))

  def loss(x, y, dtype):
    return jnp.sum(jnp.sin(arithmetic.einsum(spec, x, y, dtype)))

  grad = jax.grad(loss, (0, 1))
  # Compiled and run: XLA refuses some of these products at run time only.
  got = jax.jit(grad, static_argnums=2)(x, y, 'bfloat16')
  want = grad(x, y, 'float32')
  for a, b in zip(got, want, strict=True):
    assert a.dtype == jnp.float32
    np.testing.assert_allclose(a, b, atol=0.1)
    assert np.abs(a - b).max() > 0
  program = jax.make_jaxpr(grad, static_argnums=2)(x, y, 'bfloat16')
  products = list(dots(program.jaxpr))
  assert len(products) == 3
  for product in products:
    assert {v.aval.dtype for v in product.invars} == {jnp.dtype('bfloat16')}
    assert product.outvars[0].aval.dtype == jnp.float32


def test_all_products_of_a_training_step_are_bfloat16():
  model = models.get_model('testing', num_classes=None, dtype='bfloat16')
  params = models.init_params(model, (32, 32, 3))
  images = normal(0, (2, 32, 32, 3))

  def loss(params):
    return jnp.sum(model.apply({'params': params}, images, train=False) ** 2)

  for product in dots(jax.make_jaxpr(jax.grad(loss))(params).jaxpr):
    assert {v.aval.dtype for v in product.invars} == {jnp.dtype('bfloat16')}
    assert product.outvars[0].aval.dtype == jnp.float32


@pytest.mark.parametrize('family', ['testing', 'Mixer-B_32'])
def test_a_bfloat16_step_runs(family):
  config = {'num_blocks': 1} if family.startswith('Mixer') else {}
  model = models.get_model(family, num_classes=3, dtype='bfloat16', **config)
  params = models.init_params(model, (64, 64, 3))
  loss_fn = update.make_loss_fn(model, lambda key, images: images)
  batch = {'image': normal(0, (2, 64, 64, 3)), 'label': jnp.array([0, 1])}
  loss, grads = jax.jit(jax.value_and_grad(loss_fn))(
    params, batch, jax.random.key(0)
  )
  assert np.isfinite(loss)
  assert {x.dtype for x in jax.tree.leaves(grads)} == {jnp.dtype('float32')}


def test_activations_are_float32_on_a_cpu_only(monkeypatch):
  assert arithmetic.policy('float32').activations == 'float32'
  for backend, dtype in (('cpu', 'float32'), ('gpu', 'bfloat16')):
    monkeypatch.setattr(jax, 'default_backend', lambda b=backend: b)
    assert arithmetic.policy(jnp.bfloat16).activations == dtype


def test_products_return_bfloat16_on_gpus():
  with arithmetic.compiling_for('gpu'):
    assert arithmetic.policy('bfloat16').results == 'bfloat16'
    assert arithmetic.policy('float32').results == 'float32'
  with arithmetic.compiling_for('tpu'):
    assert arithmetic.policy('bfloat16').results == 'float32'


@pytest.mark.parametrize('classifier', ['token', 'gap', 'map', 'token_mean'])
def test_features_are_float32_where_activations_are_not(classifier):
  model = models.get_model(
    'testing', num_classes=None, dtype='bfloat16', classifier=classifier
  )
  params = models.init_params(model, (64, 64, 3))
  with arithmetic.compiling_for('gpu'):
    features = jax.eval_shape(
      lambda images: model.apply({'params': params}, images, train=False),
      jax.ShapeDtypeStruct((2, 64, 64, 3), jnp.bfloat16),
    )
  assert features.dtype == jnp.float32


@pytest.mark.parametrize('epsilon', [1e-6, 0.1])
def test_layer_norm_and_its_gradient_equal_flax(epsilon):
  x, weights = 3 + normal(0, (2, 5, 8)), normal(1, (2, 5, 8))
  variables = {'params': {'scale': normal(2, (8,)), 'bias': normal(3, (8,))}}

  def grads(layer):
    def loss(variables, x):
      return jnp.sum(layer.apply(variables, x) * weights)

    return jax.value_and_grad(loss, (0, 1))(variables, x)

  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4),
    grads(layers.LayerNorm(epsilon)),
    grads(nn.LayerNorm(epsilon)),
  )


def attention(dropout_rate):
  ours = attention_lib.MultiHeadDotProductAttention(
    2, dropout_rate=dropout_rate
  )
  flax = nn.MultiHeadDotProductAttention(
    2,
    dropout_rate=dropout_rate,
    broadcast_dropout=False,
    kernel_init=layers.LECUN,
  )
  return ours, flax


def test_attention_init_equals_flax():
  x = normal(0, (2, 5, 8))
  ours, flax = attention(0.0)
  jax.tree.map(
    np.testing.assert_array_equal,
    ours.init(jax.random.key(0), x, deterministic=True),
    flax.init(jax.random.key(0), x, x, deterministic=True),
  )


@pytest.mark.parametrize('deterministic', [True, False])
def test_attention_dropout_and_weights_equal_flax(deterministic):
  x = normal(0, (2, 5, 8))
  ours, flax = attention(0.5)
  params = flax.init(jax.random.key(0), x, x, deterministic=True)['params']
  params = jax.tree.map(lambda p: p + normal(1, p.shape), params)
  how = {
    'deterministic': deterministic,
    'rngs': {'dropout': jax.random.key(7)},
    'mutable': 'intermediates',
  }
  got, got_sown = ours.apply({'params': params}, x, **how)
  want, want_sown = flax.apply(
    {'params': params}, x, x, sow_weights=True, **how
  )
  np.testing.assert_allclose(got, want, atol=1e-5)
  for a, b in zip(
    jax.tree.leaves(got_sown), jax.tree.leaves(want_sown), strict=True
  ):
    np.testing.assert_allclose(a, b, atol=1e-6)
  assert jax.tree.structure(got_sown) == jax.tree.structure(want_sown)


@pytest.mark.parametrize('size', [(8, 12), (9, 15)])
def test_patch_embedding_is_a_convolution(size):
  images = normal(0, (2, *size, 3))
  conv = nn.Conv(5, (4, 3), strides=(4, 3), padding='VALID')
  ours = layers.PatchEmbedding(5, (4, 3))
  variables = conv.init(jax.random.key(0), images)
  jax.tree.map(
    np.testing.assert_array_equal,
    variables,
    ours.init(jax.random.key(0), images),
  )
  want = conv.apply(variables, images)
  np.testing.assert_allclose(
    ours.apply(variables, images),
    want.reshape(2, -1, 5),
    atol=1e-5,
  )


def test_a_call_with_another_rank_than_annotated_is_refused():
  block = parts.MlpBlock(mlp_dim=3)
  with pytest.raises(jaxtyping.TypeCheckError):
    block.init(jax.random.key(0), jnp.ones((2, 3)), deterministic=True)
