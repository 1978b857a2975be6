"""Training leaves out some patches of each image; evaluation leaves out none."""

import flax.linen as nn
from golden_files import golden_arrays
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_blocks import golden

from vit_jax import models
from vit_jax.configs import common
from vit_jax.configs import models as model_configs
from vit_jax.configs import validate
from vit_jax.models import blocks
from vit_jax.models import flops
from vit_jax.runtime import errors
from vit_jax.training import update


class Drop(nn.Module):
  rate: float
  num_prefix_tokens: int = 0

  @nn.compact
  def __call__(self, x, train):
    return blocks.drop_patches(
      self, x, self.rate, self.num_prefix_tokens, deterministic=not train
    )


def numbers(images, length):
  """Returns tokens of width 1 that are different numbers."""
  return jnp.arange(images * length, dtype='float32').reshape(images, length, 1)


def dropped(x, seed=0, **kwargs):
  rngs = {'dropout': jax.random.key(seed)}
  return np.asarray(Drop(**kwargs).apply({}, x, train=True, rngs=rngs))[..., 0]


def test_the_first_tokens_stay_and_each_image_keeps_its_own_patches():
  x = numbers(images=8, length=18)
  got = dropped(x, rate=0.75, num_prefix_tokens=2)
  assert got.shape == (8, 2 + 4)
  np.testing.assert_array_equal(got[:, :2], x[:, :2, 0])
  places = got[:, 2:] - np.asarray(x)[:, :1, 0]
  chosen = {tuple(sorted(row)) for row in places}
  assert all(min(row) >= 2 and max(row) < 18 for row in chosen)
  assert all(len(set(row)) == 4 for row in chosen)
  assert len(chosen) > 4
  again = dropped(x, seed=1, rate=0.75, num_prefix_tokens=2)
  assert (again != got).any()


def test_every_patch_is_left_out_as_often_as_the_others():
  x = jnp.broadcast_to(numbers(1, 10), (4000, 10, 1))
  kept = dropped(x, rate=0.3).astype(int).ravel()
  np.testing.assert_allclose(np.bincount(kept) / 4000, 0.7, atol=0.04)


def test_one_patch_stays_at_least():
  assert dropped(numbers(2, 5), rate=0.99).shape == (2, 1)


@pytest.mark.parametrize('scan', [False, True])
def test_blocks_see_fewer_tokens_in_training_alone(scan):
  model, params, images = golden(
    'vit_token', patch_dropout=0.5, scan_layers=scan
  )
  if scan:
    params = blocks.stack(params)
  lengths = []
  original = models.Encoder1DBlock.__call__

  def spy(self, x, *args, **kwargs):
    lengths.append(x.shape[1])
    return original(self, x, *args, **kwargs)

  loss_fn = update.make_loss_fn(model, lambda key, images: images)
  batch = {'image': jnp.asarray(images), 'label': jnp.arange(len(images))}
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(models.Encoder1DBlock, '__call__', spy)
    outputs = model.apply({'params': params}, images, train=False)
    (whole,) = set(lengths)
    lengths.clear()
    grads = jax.grad(loss_fn)(params, batch, jax.random.key(0))
  want = golden_arrays('vit_token.io.npz')['outputs']
  np.testing.assert_allclose(outputs, want, atol=1e-5)
  assert set(lengths) == {1 + (whole - 1) // 2}
  assert all(np.isfinite(x).all() for x in jax.tree.leaves(grads))


def test_patches_that_are_left_out_cost_no_flops():
  config = model_configs.get_model_config('ViT-Ti_16')
  shape, dropped = (224, 224, 3), config.copy_and_resolve_references()
  dropped.transformer.patch_dropout = 0.75
  whole, part = (
    flops.train_flops(models.from_config(c, num_classes=10), shape)
    for c in (config, dropped)
  )
  assert whole == 3 * flops.forward_flops(
    models.from_config(config, num_classes=10), shape
  )
  assert 0.2 < part / whole < 0.3


@pytest.mark.parametrize(
  'name, changes', [('mixer_b16', {}), ('s16', {'rotary_base': 100.0})]
)
def test_models_that_need_every_patch_refuse_to_leave_some_out(name, changes):
  config = common.with_dataset(common.get_config(), 'cifar10')
  with config.unlocked():
    config.model = model_configs.get_model_config(name)
    config.model.update(changes)
  config.pp.crop = 224
  config.total_steps, config.patch_dropout = 10, 0.5
  with pytest.raises(
    errors.UserError, match=r'config.patch_dropout is 0.5, but'
  ):
    validate.validate(config)
