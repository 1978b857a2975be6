"""A policy changes the precision of a model, and nothing else."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_layers import dots

from vit_jax import models
from vit_jax.models import arithmetic
from vit_jax.models import normalization
from vit_jax.models import parts

DEFAULT = arithmetic.Policy(activations='float32')  # On a CPU.
CHANGES = {
  'results': 'bfloat16',
  'activations': 'bfloat16',
  'attention_weights': 'bfloat16',
  'kept_by_norm': 'bfloat16',
  'activation_again': True,
  'fused_qkv': True,
}


def loss_and_gradient(dtype):
  """Returns the loss and the gradient of a small ViT."""
  model = models.get_model(
    'ViT-Mini_8',
    num_classes=3,
    hidden_size=32,
    transformer={'num_layers': 2, 'mlp_dim': 64, 'num_heads': 4},
    dtype=dtype,
  )
  params = models.init_params(model.clone(dtype='float32'), (16, 16, 3))
  rng = np.random.default_rng(0)
  params = jax.tree.map(
    lambda x: x + rng.normal(0, 0.1, x.shape).astype('float32'), params
  )
  images = rng.uniform(-1, 1, (4, 16, 16, 3)).astype('float32')

  def loss(params):
    logits = model.apply({'params': params}, images, train=False)
    return jnp.mean(jnp.sin(logits))

  return jax.jit(jax.value_and_grad(loss))(params)


def distance(a, b):
  """Returns the largest difference of two trees, relative to the second."""
  far = jax.tree.map(lambda x, y: jnp.max(jnp.abs(x - y)), a, b)
  size = jax.tree.map(lambda y: jnp.max(jnp.abs(y)), b)
  return max(jax.tree.leaves(far)) / max(jax.tree.leaves(size))


def test_bfloat16_is_the_default_policy():
  for a, b in zip(
    jax.tree.leaves(loss_and_gradient('bfloat16')),
    jax.tree.leaves(loss_and_gradient(DEFAULT)),
    strict=True,
  ):
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize('name', CHANGES)
def test_each_change_stays_near_float32(name):
  exact = loss_and_gradient('float32')
  changed = dataclasses.replace(DEFAULT, **{name: CHANGES[name]})
  loss, gradient = loss_and_gradient(changed)
  assert loss.dtype == jnp.float32
  assert {x.dtype for x in jax.tree.leaves(gradient)} == {jnp.dtype('float32')}
  assert 0 < distance((loss, gradient), exact) < 0.02


def test_one_product_for_queries_keys_and_values_is_the_same_in_float32():
  policy = dataclasses.replace(arithmetic.policy('float32'), fused_qkv=True)
  gradients = loss_and_gradient(policy), loss_and_gradient('float32')
  assert distance(*gradients) < 1e-5


def kept(function, *inputs):
  """Returns the dtypes of arrays that a derivative keeps, but for vectors."""
  _, vjp = jax.eval_shape(lambda *x: jax.vjp(function, *x), *inputs)
  return {x.dtype.name for x in jax.tree.leaves(vjp) if x.size > 64}


@pytest.mark.parametrize('name', ['float32', 'bfloat16'])
def test_softmax_and_norm_keep_what_the_policy_says(name):
  policy = dataclasses.replace(
    DEFAULT, attention_weights=name, kept_by_norm=name
  )
  x = jnp.zeros((4, 8, 16))
  assert kept(lambda x: normalization.softmax(x, policy), x) == {name}
  assert kept(lambda x: normalization.normalize(x, 1e-6, policy), x) == {name}


@pytest.mark.parametrize('activation', ['gelu', 'quick_gelu', 'swiglu'])
def test_an_activation_computed_again_keeps_its_inputs_alone(activation):
  x, gradients, sizes = jnp.ones((2, 8, 4)), [], []
  for again in (False, True):
    policy = dataclasses.replace(DEFAULT, activation_again=again)
    mlp = parts.MlpBlock(64, 0.0, dtype=policy, activation=activation)
    params = mlp.init(jax.random.key(0), x, deterministic=True)

    def total(params, mlp=mlp):
      return jnp.sum(jnp.sin(mlp.apply(params, x, deterministic=True)))

    gradients.append(jax.jit(jax.grad(total))(params))
    _, vjp = jax.vjp(total, params)
    wide = [a for a in jax.tree.leaves(vjp) if a.shape == (2, 8, 64)]
    sizes.append(len(wide))
  jax.tree.map(np.testing.assert_array_equal, *gradients)
  inputs = 2 if activation == 'swiglu' else 1
  # One more is the input of the last product.
  assert sizes[1] == inputs + 1 < sizes[0]


@pytest.mark.parametrize('platform, barriers', [('cpu', 1), ('gpu', 0)])
def test_a_bias_keeps_the_dtype_of_products_and_sums_its_gradient_in_float32(
  platform, barriers
):
  policy = dataclasses.replace(DEFAULT, results='bfloat16')
  y, bias = jnp.zeros((4095, 3), 'bfloat16'), jnp.full((3,), 0.5, 'float32')
  with arithmetic.compiling_for(platform):
    total = lambda y, b: jnp.sum(arithmetic.add_bias(y, b, policy))
    dy, db = jax.grad(total, (0, 1))(y, bias)
    text = str(jax.make_jaxpr(jax.grad(total, (0, 1)))(y, bias))
    assert text.count('optimization_barrier') == barriers
    assert arithmetic.add_bias(y, bias, policy).dtype == jnp.bfloat16
  assert dy.dtype == jnp.bfloat16
  assert db.dtype == jnp.float32
  np.testing.assert_array_equal(db, 4095.0)


def test_gpus_save_memory_and_its_traffic():
  with arithmetic.compiling_for('gpu'):
    how = arithmetic.policy('bfloat16')
  assert how == arithmetic.Policy(
    results='bfloat16',
    attention_weights='bfloat16',
    kept_by_norm='bfloat16',
    activation_again=True,
  )


def test_a_norm_that_keeps_its_input_has_the_same_gradient():
  x = jnp.asarray(np.random.default_rng(0).normal(3, 1, (4, 8, 16)), 'bfloat16')
  gradients = []
  for name in ('float32', 'bfloat16'):
    policy = dataclasses.replace(DEFAULT, kept_by_norm=name)

    def total(x, policy=policy):
      return jnp.sum(jnp.sin(normalization.normalize(x, 1e-6, policy)))

    text = str(jax.make_jaxpr(jax.grad(total))(x))
    # XLA must not compute the moments again.
    assert ('optimization_barrier' in text) == (name == 'bfloat16')
    gradients.append(jax.grad(total)(x.astype('float32')))
  np.testing.assert_allclose(*gradients, atol=1e-6)


@pytest.mark.parametrize('results', ['float32', 'bfloat16'])
def test_products_return_what_the_policy_says(results):
  policy = dataclasses.replace(DEFAULT, results=results)
  x, y = jnp.ones((2, 8, 16)), jnp.ones((16, 4))

  def loss(x, y):
    return jnp.sum(arithmetic.einsum('bld,de->ble', x, y, policy))

  program = jax.make_jaxpr(jax.grad(loss, (0, 1)))(x, y)
  products = list(dots(program.jaxpr))
  assert len(products) == 3
  assert {p.outvars[0].aval.dtype.name for p in products} == {results}


def test_the_gradient_of_a_kernel_transposes_no_activation():
  policy = dataclasses.replace(DEFAULT, results='bfloat16')
  x, y = jnp.ones((2, 8, 16)), jnp.ones((16, 4))

  def loss(x, y):
    return jnp.sum(arithmetic.einsum('bld,de->ble', x, y, policy))

  program = str(jax.make_jaxpr(jax.grad(loss, (0, 1)))(x, y))
  transposed = re.findall(r'bf16\[([\d,]+)\] = transpose', program)
  assert transposed == ['4,16']  # The kernel.
