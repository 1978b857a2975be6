"""Every released family has the official names, shapes and outputs."""

import functools
import json

import flax.traverse_util
from golden_files import GOLDEN
from golden_files import golden_arrays
from golden_files import golden_json
import jax
from made import random_weights
from made import VIT
import numpy as np
import pytest

from vit_jax import checkpoint
from vit_jax import models
from vit_jax.configs import models as model_configs
from vit_jax.models import resnet

CASES = golden_json('index.json')
RELEASED = golden_json('released_models.json.gz')

SMALL_BERT = {
  'hidden_size': 24,
  'intermediate_dim': 48,
  'num_hidden_layers': 2,
  'num_attention_heads': 3,
  'vocab_size': 100,
  'max_length': 16,
}


def lit_case(name):
  config = CASES[name]['config']
  if config['text_model'] == 'bert':
    config = config | {'text': {'config': SMALL_BERT}}
  params = checkpoint.load(GOLDEN / f'{name}.npz')
  return models.from_config(config), params, golden_arrays(f'{name}.io.npz')


# 24 blocks or more take seconds to trace.
DEEP = ('ViT-L', 'ViT-H', 'ViT-g', 'Mixer-L', 'LiT-L', 'R50+ViT-L')


@pytest.mark.parametrize(
  'name',
  [
    pytest.param(name, marks=[pytest.mark.slow] * name.startswith(DEEP))
    for name in RELEASED
  ],
)
def test_released_config_names_shapes_and_counts(name):
  released = RELEASED[name]
  config = model_configs.MODEL_CONFIGS[name].to_dict()
  assert json.loads(json.dumps(config)) == released['config']
  if 'text_model' in config:
    model = models.get_model(name)
  else:
    model = models.get_model(name, num_classes=1000)
  params = models.abstract_params(model, (224, 224, 3))
  flat = flax.traverse_util.flatten_dict(params, sep='/')
  assert {k: list(v.shape) for k, v in flat.items()} == released['params']
  count = sum(np.prod(x.shape) for x in flat.values())
  assert count == released['num_params']


@pytest.mark.parametrize('name', ['vit_token', 'scanned', 'mixer', 'lit_bert'])
def test_abstract_params_are_those_of_init_params(name):
  if name == 'lit_bert':
    model, _, _ = lit_case(name)
  else:
    config = CASES['mixer' if name == 'mixer' else 'vit_token']['config']
    if name == 'scanned':
      transformer = {**config['transformer'], 'scan_layers': True}
      config = config | {'transformer': transformer}
    model = models.from_config(config, num_classes=3)
  want = jax.eval_shape(lambda: models.init_params(model, (32, 32, 3)))
  assert models.abstract_params(model, (32, 32, 3)) == want


def test_model_configs_has_every_released_model():
  ours = {'ViT-Mini_8'}
  assert set(RELEASED) | ours == set(model_configs.MODEL_CONFIGS)
  names = [model_configs.short_name(name) for name in RELEASED]
  assert len(set(names)) == len(names)
  for short, name in zip(names, RELEASED, strict=True):
    getter = getattr(model_configs, f'get_{short}_config')
    assert getter().model_name == name


def test_augreg_configs_keys_are_file_names():
  assert model_configs.AUGREG_CONFIGS['R26_S_32'].model_name == 'R26+ViT-S_32'
  for name in ('L_32', 'H_14', 'R50_B_16', 'Mixer-B_16', 'testing'):
    assert name not in model_configs.AUGREG_CONFIGS


@pytest.mark.parametrize('name', ['lit_text_transformer', 'lit_bert'])
def test_lit_equals_official_embeddings(name):
  model, params, io = lit_case(name)
  zimg, ztxt, out = jax.jit(model.apply)(
    {'params': params}, images=io['images'], tokens=io['tokens']
  )
  np.testing.assert_allclose(zimg, io['zimg'], atol=1e-5)
  np.testing.assert_allclose(ztxt, io['ztxt'], atol=1e-5)
  np.testing.assert_allclose(out['t'], io['t'], rtol=1e-6)


def test_lit_towers_run_alone():
  model, params, io = lit_case('lit_bert')
  apply = jax.jit(model.apply)
  zimg, ztxt, _ = apply({'params': params}, images=io['images'])
  assert ztxt is None
  np.testing.assert_allclose(zimg, io['zimg'], atol=1e-5)
  zimg, ztxt, _ = apply({'params': params}, tokens=io['tokens'])
  assert zimg is None
  np.testing.assert_allclose(ztxt, io['ztxt'], atol=1e-5)


def test_bert_does_not_attend_to_padding():
  model, params, _ = lit_case('lit_bert')
  tokens = np.array([[1, 5, 7, 0, 0, 0, 0, 0]])
  apply = jax.jit(model.apply)
  _, long, _ = apply({'params': params}, tokens=tokens)
  _, short, _ = apply({'params': params}, tokens=tokens[:, :3])
  np.testing.assert_allclose(long, short, atol=1e-6)


def test_image_tower_is_locked_and_text_tower_has_dropout():
  model, params, io = lit_case('lit_bert')
  zimg, ztxt, _ = jax.jit(functools.partial(model.apply, train=True))(
    {'params': params},
    images=io['images'],
    tokens=io['tokens'],
    rngs={'dropout': jax.random.key(0)},
  )
  np.testing.assert_allclose(zimg, io['zimg'], atol=1e-5)
  assert np.abs(ztxt - io['ztxt']).max() > 0.01


def test_weight_standardize_gives_mean_0_and_deviation_1():
  kernel = np.random.RandomState(0).normal(2, 3, (3, 3, 4, 5))
  result = np.asarray(resnet.weight_standardize(kernel, (0, 1, 2), 1e-5))
  np.testing.assert_allclose(result.mean((0, 1, 2)), 0, atol=1e-6)
  np.testing.assert_allclose(result.std((0, 1, 2)), 1, atol=1e-4)


def test_resnet_alone_has_no_class_token():
  config = CASES['resnet_only_gap']['config'] | {'classifier': 'token'}
  model = models.from_config(config, num_classes=3)
  with pytest.raises(ValueError, match="must be 'gap' or 'unpooled'"):
    models.init_params(model, (64, 64, 3))


def test_mixer_trains_with_stochastic_depth_and_remat():
  config = CASES['mixer']['config']
  params = checkpoint.load(GOLDEN / 'mixer.npz')
  io = golden_arrays('mixer.io.npz')
  plain = models.from_config(config, num_classes=10)
  changed = models.from_config(
    config, num_classes=10, stochastic_depth_rate=0.9, remat='full'
  )

  def outputs(model, train):
    rngs = {'dropout': jax.random.key(0)}
    apply = jax.jit(functools.partial(model.apply, train=train))
    return apply({'params': params}, io['inputs'], rngs=rngs)

  np.testing.assert_allclose(
    outputs(changed, False), outputs(plain, True), atol=1e-5
  )
  assert np.abs(outputs(changed, True) - io['outputs']).max() > 0.01


@pytest.mark.parametrize(
  ('changes', 'width'),
  [
    ({}, 32),
    ({'classifier': 'token_mean'}, 64),
    ({'representation_size': 8}, 8),
    ({'projection': 8}, 8),
  ],
)
def test_models_with_two_heads_have_features(changes, width):
  weights = random_weights(
    VIT, num_classes=0, size=16, distillation='head', **changes
  )
  images = np.zeros((2, 16, 16, 3), np.float32)
  features = weights.module().apply(
    {'params': weights.params}, images, train=False
  )
  assert features.shape == (2, width)


def test_token_gap_leaves_out_class_token():
  config = CASES['vit_token']['config']
  params = checkpoint.load(GOLDEN / 'vit_token.npz')
  images = golden_arrays('vit_token.io.npz')['inputs']
  features = {
    classifier: models.from_config(
      config | {'classifier': classifier}, num_classes=None
    ).apply({'params': params}, images, train=False)
    for classifier in ('token_unpooled', 'token_gap')
  }
  np.testing.assert_allclose(
    features['token_gap'], features['token_unpooled'][:, 1:].mean(1), atol=1e-6
  )
