"""Models with two towers that scan, recompute and round learn the same."""

import functools

import clips
import jax
import ml_collections
import numpy as np
import optax
import pytest

from vit_jax import models
from vit_jax.configs import arguments
from vit_jax.configs import common
from vit_jax.models import blocks
from vit_jax.models import flops
from vit_jax.training import contrastive
from vit_jax.training import freeze
from vit_jax.training import optimizers

SHAPE = (16, 16, 3)
BERT = {
  'hidden_size': 16,
  'intermediate_dim': 24,
  'num_hidden_layers': 1,
  'num_attention_heads': 2,
  'vocab_size': 40,
}


def clip(image_depth=1, text_depth=2):
  """Returns the config of a CLIP whose towers differ in depth."""
  model = clips.pair().model
  transformer = {**model['image']['transformer'], 'num_layers': image_depth}
  image = {**model['image'], 'transformer': transformer}
  text = {**model['text'], 'num_layers': text_depth, 'vocab_size': 40, 'end': 9}
  return {**model, 'image': image, 'text': text}


def bert():
  """Returns the config of the image tower of a SigLIP with the texts of a LiT."""
  model = clip(2)
  image = {**model['image'], 'classifier': 'map', 'projection': None}
  text = {'config': {**BERT, 'dropout_rate': 0.0}}
  towers = {'text_model': 'bert', 'text': text, 'out_dim': (12, 12)}
  return {**model, **towers, 'image': image}


PAIRS = {
  'clip': (clip, 'softmax', 'adafactor'),
  'bert': (bert, 'sigmoid', 'sgd'),
}


def settings(name, **changes):
  make, loss, optimizer = PAIRS[name]
  config = common.get_config().unlock()
  config.model = ml_collections.ConfigDict(make())
  values = {'loss': loss, 'optimizer': optimizer, 'lock_image_tower': False}
  config.update({**values, 'layer_norm_epsilon': 1e-5, **changes})
  return config


def first_params(module):
  """Returns parameters without zeros, stacked if the module scans its blocks."""
  plain = models.unrolled(module)
  rng = np.random.default_rng(0)
  params = jax.tree.map(
    lambda x: rng.normal(0, 0.3, x.shape).astype(np.float32),
    models.abstract_params(plain, SHAPE),
  )
  return params if plain is module else blocks.stack(params)


def learned(config, steps=3):
  """Returns the loss and the parameters, unrolled, after a few steps."""
  module = models.from_config(arguments.of_model(config))
  params = first_params(module)
  loss_fn = contrastive.make_loss_fn(module, lambda key, x: x, config.loss)
  tx = optimizers.create_optimizer(
    lambda _: 0.01, optimizer=config.optimizer, weight_decay=0.1
  )
  frozen = contrastive.LOCKED if config.lock_image_tower else ()
  rng = np.random.default_rng(1)
  batch = {
    'image': rng.normal(size=(4, *SHAPE)).astype(np.float32),
    'tokens': rng.integers(1, 40, (4, 8)),
  }

  @jax.jit
  def step(params, rest, state):
    loss = lambda p: loss_fn(freeze.join(p, rest), batch, jax.random.key(0))
    value, grads = jax.value_and_grad(loss)(params)
    updates, state = tx.update(grads, state, params)
    return value, optax.apply_updates(params, updates), state

  trained, rest = freeze.split(params, frozen)
  state = tx.init(trained)
  for _ in range(steps):
    value, trained, state = step(trained, rest, state)
  return value, blocks.unstack(freeze.join(trained, rest))


@functools.cache
def unrolled(name):
  return learned(settings(name))


@pytest.mark.slow
@pytest.mark.parametrize('name', ['bert', 'clip'])
def test_scanned_towers_learn_what_unrolled_ones_learn(name):
  want_loss, want = unrolled(name)
  loss, got = learned(settings(name, scan_layers=True, remat='full'))
  np.testing.assert_allclose(loss, want_loss, rtol=1e-5)
  assert jax.tree.structure(got) == jax.tree.structure(want)
  leaves = jax.tree_util.tree_leaves_with_path(got)
  for (path, x), y in zip(leaves, jax.tree.leaves(want), strict=True):
    key = jax.tree_util.keystr(path, simple=True, separator='/')
    if not key.endswith('key/bias'):  # Softmax does not see them.
      np.testing.assert_allclose(x, y, atol=1e-5, err_msg=key)


@pytest.mark.slow
def test_bfloat16_rounds_the_image_tower():
  loss, got = learned(settings('bert', scan_layers=True, dtype='bfloat16'))
  want_loss, want = unrolled('bert')
  assert 0 < abs(loss - want_loss) < 0.05 * want_loss
  assert all(x.dtype == np.float32 for x in jax.tree.leaves(got))
  far = jax.tree.map(lambda x, y: np.abs(x - y).mean(), got, want)
  assert 0 < max(jax.tree.leaves(far)) < 0.01


def test_settings_of_depth_stay_out_of_saved_models():
  model = arguments.of_saved_model(settings('clip', scan_layers=True))
  assert model['text'] == clip()['text']
  names = {'scan_layers', 'remat', 'stochastic_depth_rate', 'attention'}
  names.add('patch_dropout')
  assert not names & set(model['image']['transformer'])


def test_flops_do_not_depend_on_scanning():
  modules = [
    models.from_config(arguments.of_model(settings('bert', scan_layers=scan)))
    for scan in (False, True)
  ]
  got, want = (flops.train_flops(module, SHAPE) for module in modules)
  assert got == want > 0
