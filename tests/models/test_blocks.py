"""Blocks that are scanned, recomputed or dropped compute the same."""

from golden_files import GOLDEN
from golden_files import golden_arrays
from golden_files import golden_json
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_layers import dots

from vit_jax import checkpoint
from vit_jax import models
from vit_jax.models import arithmetic
from vit_jax.models import blocks
from vit_jax.training import update

CASES = golden_json('index.json')


def golden(name, **changes):
  """Returns (model, unstacked parameters, images); `changes` of the blocks."""
  case = CASES[name]
  config = dict(case['config'])
  if name == 'mixer':
    config |= changes
  else:
    config['transformer'] = config['transformer'] | changes
  model = models.from_config(config, num_classes=10)
  params = checkpoint.load(GOLDEN / f'{name}.npz')
  return model, params, golden_arrays(f'{name}.io.npz')['inputs']


@pytest.mark.parametrize(
  'platform, train, times',
  [('gpu', True, 1), ('gpu', False, 0), ('cpu', True, 0)],
)
def test_gpus_are_told_the_order_of_tokens_in_training_alone(
  platform, train, times
):
  """Exported programs, which do not train, must not have it."""
  model, params, images = golden('vit_token')

  def forward(params):
    rngs = {'dropout': jax.random.key(0)}
    return model.apply({'params': params}, images, train=train, rngs=rngs)

  with arithmetic.compiling_for(platform):
    text = jax.jit(forward).lower(params).as_text()
  lines = [line for line in text.splitlines() if '@LayoutConstraint' in line]
  assert len(lines) == times
  # The fastest axis first.
  assert all('result_layouts = [dense<[2, 1, 0]>' in line for line in lines)


def loss_and_grads(model, params, images):
  loss_fn = update.make_loss_fn(model, lambda key, images: images)
  batch = {'image': jnp.asarray(images), 'label': jnp.arange(len(images))}
  grad_fn = jax.jit(jax.value_and_grad(loss_fn))
  return grad_fn(params, batch, jax.random.key(0))


@pytest.mark.parametrize('name', ['vit_token', 'mixer'])
@pytest.mark.parametrize('remat', ['', 'dots_saveable'])
def test_scanned_blocks_equal_unrolled_ones(name, remat):
  quiet = {} if name == 'mixer' else {'dropout_rate': 0.0}
  plain, params, images = golden(name, **quiet)
  scanned, *_ = golden(name, scan_layers=True, remat=remat, **quiet)
  want, want_grads = loss_and_grads(plain, params, images)
  got, grads = loss_and_grads(scanned, blocks.stack(params), images)
  np.testing.assert_allclose(got, want, rtol=1e-5)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5),
    blocks.unstack(grads),
    want_grads,
  )


def test_init_params_are_equal_with_scanned_blocks():
  plain, _, images = golden('vit_token')
  scanned, *_ = golden('vit_token', scan_layers=True)
  got = models.init_params(scanned, images.shape[1:], seed=3)
  kernel = got['Transformer']['encoderblock']['MlpBlock_0']['Dense_0']['kernel']
  assert kernel.shape == (3, 32, 64)
  jax.tree.map(
    np.testing.assert_array_equal,
    blocks.unstack(got),
    models.init_params(plain, images.shape[1:], seed=3),
  )


def test_unstack_undoes_stack():
  _, params, _ = golden('vit_token')
  stacked = blocks.stack(params)
  assert all(isinstance(x, np.ndarray) for x in jax.tree.leaves(stacked))
  back = blocks.unstack(stacked)
  assert back.keys() == params.keys()
  jax.tree.map(np.testing.assert_array_equal, back, params)


def test_scanned_models_sow_the_weights_of_all_blocks():
  _, params, images = golden('vit_token')
  model, *_ = golden('vit_token', scan_layers=True)
  _, sown = model.apply(
    {'params': blocks.stack(params)},
    images,
    train=False,
    mutable='intermediates',
  )
  (weights,) = jax.tree.leaves(sown)
  assert weights.shape[0] == 3
  np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_remat_policies_recompute(dtype):
  """A block has 8 products: 4 around attention, 2 in it and 2 in the MLP."""

  def count(remat):
    model, params, images = golden('vit_token', remat=remat, dropout_rate=0.0)
    grad = jax.grad(
      lambda p: (
        model.clone(dtype=dtype).apply({'params': p}, images, train=True).sum()
      )
    )
    # The last product of a block is not needed to differentiate it.
    return sum(1 for _ in dots(jax.make_jaxpr(grad)(params).jaxpr))

  plain = count('')
  assert count('dots_saveable') == plain
  assert count('dots_with_no_batch_dims_saveable') - plain == 3 * 2
  assert count('full') - plain in (3 * 7, 3 * 8)


def test_stochastic_depth_grows_linearly_and_is_off_in_eval_mode():
  model, params, images = golden('vit_token', stochastic_depth_rate=0.4)
  outputs = model.apply({'params': params}, images, train=False)
  want = golden_arrays('vit_token.io.npz')['outputs']
  np.testing.assert_allclose(outputs, want, atol=1e-5)

  rates = []
  original = models.Encoder1DBlock.__call__

  def spy(self, x, rate, **kwargs):
    rates.append(rate)
    return original(self, x, rate, **kwargs)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(models.Encoder1DBlock, '__call__', spy)
    model.apply({'params': params}, images, train=False)
  assert rates == [None, pytest.approx(0.2), pytest.approx(0.4)]


@pytest.mark.parametrize('scan', [False, True])
def test_drop_branch_leaves_some_images_unchanged(scan):
  def last(x, rate):
    _, params, _ = golden('vit_token')
    encoder = models.Encoder(
      num_layers=2,
      mlp_dim=64,
      num_heads=4,
      dropout_rate=0.0,
      attention_dropout_rate=0.0,
      add_position_embedding=False,
      final_norm=False,
      stochastic_depth_rate=rate,
      scan_layers=scan,
    )
    tree = {k: params['Transformer'][f'encoderblock_{i}'] for i, k in
            enumerate(('encoderblock_0', 'encoderblock_1'))}  # fmt: skip
    return encoder.apply(
      {'params': blocks.stack(tree) if scan else tree},
      x,
      train=True,
      rngs={'dropout': jax.random.key(0)},
    )

  x = jnp.asarray(np.random.RandomState(0).normal(size=(64, 5, 32)), 'float32')
  half = last(x, 0.5)
  # The first block never drops, so that of two branches both, one or none do.
  first = last(x, 0.999)
  kept = np.isclose(half, first, atol=1e-5).all((1, 2))
  assert 4 < kept.sum() < 32
