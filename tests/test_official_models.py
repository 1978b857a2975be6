"""Models are found, built and called as those of the official code."""

import importlib
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax import models
from vit_jax.configs import models as model_configs


def test_get_model_initialises_and_applies_by_the_official_arguments():
  model = models.get_model(name='testing-unpooled', num_classes=7)
  images = jnp.ones([2, 48, 32, 3], jnp.float32)
  variables = model.init(jax.random.PRNGKey(0), images, train=False)
  assert model.apply(variables, images, train=False).shape == (2, 6, 7)
  assert (model.patches.size, model.transformer.mlp_dim) == ((16, 16), 10)


# Names of get_*_config in the official configs/models.py.
OFFICIAL_GETTERS = [
  'testing',
  'testing_unpooled',
  'ti16',
  's16',
  's32',
  'b16',
  'b32',
  'b8',
  'l16',
  'l32',
  'h14',
  's16_gap_norep',
  's32_gap_norep',
  'b16_gap_norep',
  'b32_gap_norep',
  'r_ti16',
  'r26_s32',
  'r26_b32',
  'r50_b16',
  'r50_l32',
  'mixer_b16',
  'mixer_b32',
  'mixer_l16',
  'lit_b16b',
  'lit_b16b_2',
  'lit_l16l',
  'lit_l16s',
  'lit_l16ti',
]


def test_configs_models_has_the_official_functions():
  names = set()
  for short_name in OFFICIAL_GETTERS:
    config = getattr(model_configs, f'get_{short_name}_config')()
    same = model_configs.MODEL_CONFIGS[config.model_name]
    assert config.to_dict() == same.to_dict()
    names.add(config.model_name)
  assert names == model_configs.MODEL_CONFIGS.keys() - {'ViT-Mini_8'}
  with pytest.raises(AttributeError, match="has no 'get_x_config'"):
    model_configs.get_x_config  # noqa: B018


def test_lit_embeds_by_the_official_arguments():
  lit = model_configs.get_lit_l16ti_config()
  lit.image = model_configs.get_testing_config()
  lit.text = {
    'width': 12, 'num_layers': 1, 'mlp_dim': 8, 'num_heads': 2, 'vocab_size': 9
  }  # fmt: skip
  lit.out_dim = (None, 10)
  model = models.LitModel(**lit)
  images = jnp.ones([2, 32, 32, 3], jnp.float32)
  tokens = jnp.ones([2, model.pp.max_len], jnp.int32)
  variables = model.init(jax.random.PRNGKey(0), images=images, tokens=tokens)
  zimg, ztxt, out = model.apply(variables, images=images, tokens=tokens)
  assert zimg.shape == ztxt.shape == (2, 10)
  assert out['t'] == 1


@pytest.mark.parametrize('name', ['LiT-B16B', 'LiT-L16Ti'])
def test_released_lit_models_have_official_preprocessing(name):
  want = {
    'LiT-B16B': {'tokenizer_name': 'bert', 'size': 224, 'max_len': 16},
    'LiT-L16Ti': {
      'tokenizer_name': 'sentencepiece',
      'size': 224,
      'max_len': 16,
    },
  }
  config = model_configs.MODEL_CONFIGS[name]
  for model in (models.get_model(name), models.from_config(config.to_dict())):
    assert {k: getattr(model.pp, k) for k in want[name]} == want[name]
    assert hash(model) == hash(model.clone())


@pytest.mark.parametrize(
  'module, names',
  [
    ('models_vit', ('VisionTransformer', 'Encoder', 'AddPositionEmbs')),
    ('models_mixer', ('MlpMixer', 'MixerBlock')),
    ('models_resnet', ('StdConv', 'ResidualUnit', 'ResNetStage')),
    ('models_lit', ('LitModel', 'BertModel', 'TextTransformer')),
  ],
)
def test_official_import_paths_are_those_of_the_models(module, names):
  official = importlib.import_module(f'vit_jax.{module}')
  for name in names:
    assert getattr(official, name).__module__.startswith('vit_jax.models.')


def test_features_before_the_head_are_captured_by_their_official_name():
  model = models.get_model('testing', num_classes=3)
  images = jnp.ones([2, 32, 32, 3], jnp.float32)
  variables = model.init(jax.random.key(0), images, train=False)
  _, state = model.apply(
    variables, images, train=False, capture_intermediates=True, mutable=True
  )
  (features,) = state['intermediates']['pre_logits']['__call__']
  headless = model.clone(num_classes=None)
  np.testing.assert_array_equal(
    features, headless.apply(variables, images, train=False)
  )


def test_another_encoder_and_another_mlp_width_can_be_given():
  class Mean(nn.Module):
    dtype: Any
    final_norm: bool
    scale: float

    @nn.compact
    def __call__(self, x, *, train):
      return self.scale * jnp.mean(x, axis=1, keepdims=True)

  model = models.VisionTransformer(
    num_classes=None,
    patches={'size': (4, 4)},
    transformer={'scale': 2.0},
    hidden_size=6,
    classifier='gap',
    encoder=Mean,
  )
  images = jnp.ones([1, 8, 8, 3])
  params = models.init_params(model, (8, 8, 3))
  assert params.keys() == {'embedding'}
  features = model.apply({'params': params}, images, train=False)
  once = model.clone(transformer={'scale': 1.0})
  np.testing.assert_allclose(
    features, 2 * once.apply({'params': params}, images, train=False)
  )
  mlp = models.MlpBlock(mlp_dim=5, out_dim=3, kernel_init=nn.initializers.ones)
  variables = mlp.init(
    jax.random.key(0), jnp.ones([1, 2, 4]), deterministic=True
  )
  assert variables['params']['Dense_1']['kernel'].shape == (5, 3)
  assert np.all(variables['params']['Dense_0']['kernel'] == 1)
