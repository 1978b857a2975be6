"""The model equals the official one, and does what that cannot."""

import functools

import flax.linen as nn
from golden_files import GOLDEN
from golden_files import golden_arrays
from golden_files import golden_json
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax import checkpoint
from vit_jax import models
from vit_jax.configs import models as model_configs
from vit_jax.models import bert
from vit_jax.models import flops
from vit_jax.models import layers
from vit_jax.runtime import errors

CASES = golden_json('index.json')
RELEASED = golden_json('released_models.json.gz')


def load_case(name):
  case = CASES[name]
  model = models.from_config(case['config'], num_classes=case['num_classes'])
  path = GOLDEN / f'{name}.npz'
  return model, checkpoint.load(path), golden_arrays(f'{name}.io.npz')


def evaluated(model, params, inputs):
  apply = jax.jit(functools.partial(model.apply, train=False))
  return apply({'params': params}, inputs)


def changed(name, **transformer):
  case = CASES[name]
  config = case['config'] | {
    'transformer': case['config']['transformer'] | transformer
  }
  return models.VisionTransformer(num_classes=case['num_classes'], **config)


@pytest.mark.parametrize(
  'name', [n for n in CASES if 'num_classes' in CASES[n]]
)
def test_equals_official_outputs_in_eval_mode(name):
  model, params, io = load_case(name)
  outputs = evaluated(model, params, io['inputs'])
  np.testing.assert_allclose(outputs, io['outputs'], atol=1e-5)


@pytest.mark.parametrize('remat', ['', 'full'])
def test_equals_official_outputs_in_train_mode(remat):
  _, params, io = load_case('vit_nonsquare')
  model = changed('vit_nonsquare', remat=remat)
  outputs = jax.jit(functools.partial(model.apply, train=True))(
    {'params': params},
    io['inputs'],
    rngs={'dropout': jax.random.PRNGKey(7)},
  )
  np.testing.assert_allclose(outputs, io['outputs_train'], atol=1e-5)
  assert np.abs(io['outputs_train'] - io['outputs']).max() > 0.01


def test_get_model_takes_short_names():
  assert model_configs.get_model_config('b16').model_name == 'ViT-B_16'
  config = model_configs.get_b16_gap_norep_config()
  assert config == model_configs.get_model_config('b16_gap_norep')
  with pytest.raises(ValueError, match=r"no model 'b17'.*b16"):
    model_configs.get_model_config('b17')


@pytest.mark.parametrize(
  'size, patch, channels, tokens',
  [
    ((30, 41), (8, 8), 3, 16),
    ((32, 32), (4, 16), 1, 17),
    ((9, 9), (4, 4), 5, 5),
  ],
)
def test_any_size_patch_and_channel_count(size, patch, channels, tokens):
  config = CASES['vit_token']['config'] | {'patches': {'size': patch}}
  model = models.from_config(config, num_classes=4)
  params = models.abstract_params(model, (*size, channels))
  posemb = params['Transformer']['posembed_input']['pos_embedding']
  assert posemb.shape == (1, tokens, 32)
  assert params['embedding']['kernel'].shape == (*patch, channels, 32)
  images = np.zeros((2, *size, channels), np.float32)
  outputs = jax.eval_shape(
    lambda params: model.apply({'params': params}, images, train=False), params
  )
  assert outputs.shape == (2, 4)


def test_pixels_outside_whole_patches_are_not_read():
  model, params, io = load_case('vit_nonsquare')
  images = io['inputs'].copy()
  images[:, 32:] = 9.0
  images[:, :, 48:] = 9.0
  outputs = evaluated(model, params, images)
  np.testing.assert_allclose(outputs, io['outputs'], atol=1e-5)


def test_bfloat16_is_close_and_returns_float32():
  _, params, io = load_case('vit_token')
  case = CASES['vit_token']
  model = models.VisionTransformer(
    num_classes=10, dtype='bfloat16', **case['config']
  )
  outputs = evaluated(model, params, io['inputs'])
  error = np.abs(outputs - io['outputs']).max()
  assert outputs.dtype == jnp.float32
  assert 1e-6 < error < 0.05 * np.abs(io['outputs']).max()


def test_a_representation_size_of_zero_is_none():
  model, params, io = load_case('vit_token')
  outputs = evaluated(model.clone(representation_size=0), params, io['inputs'])
  np.testing.assert_allclose(outputs, io['outputs'], atol=1e-5)


def test_longer_texts_than_the_positions_of_bert_are_refused():
  tower = bert.BertEncoder(8, 16, 1, 2, vocab_size=50, max_length=5)
  init = functools.partial(tower.init, jax.random.key(0), train=False)
  jax.eval_shape(init, jnp.ones((1, 5), jnp.int32))
  with pytest.raises(errors.UserError, match=r'have 6 tokens, .* only 5 posi'):
    jax.eval_shape(init, jnp.ones((1, 6), jnp.int32))


def test_layer_norm_epsilon_and_exact_gelu_change_the_outputs():
  _, params, io = load_case('vit_token')
  for setting in ({'layer_norm_epsilon': 1e-2}, {'exact_gelu': True}):
    model = changed('vit_token', **setting)
    outputs = evaluated(model, params, io['inputs'])
    assert 1e-6 < np.abs(outputs - io['outputs']).max() < 0.5


def test_every_layer_norm_has_the_epsilon():
  _, params, io = load_case('vit_token')
  epsilons = []

  def spy(next_fn, args, kwargs, context):
    if isinstance(context.module, layers.LayerNorm):
      epsilons.append(context.module.epsilon)
    return next_fn(*args, **kwargs)

  model = changed('vit_token', layer_norm_epsilon=1e-3)
  with nn.intercept_methods(spy):
    jax.eval_shape(
      functools.partial(model.apply, train=False),
      {'params': params},
      io['inputs'],
    )
  assert epsilons == [1e-3] * 7


def test_exact_gelu_is_the_error_function():
  block = models.MlpBlock(mlp_dim=1, dropout_rate=0.0, exact_gelu=True)
  one = jnp.ones((1, 1))
  params = {
    'Dense_0': {'kernel': one, 'bias': jnp.zeros(1)},
    'Dense_1': {'kernel': one, 'bias': jnp.zeros(1)},
  }
  x = jnp.array([-1.5, 0.3, 2.0]).reshape(3, 1, 1)
  y = block.apply({'params': params}, x, deterministic=True)
  want = x * (1 + jax.scipy.special.erf(x / np.sqrt(2))) / 2
  np.testing.assert_allclose(y, want, atol=1e-6)


def test_stochastic_depth_drops_whole_branches_of_single_images():
  block = models.Encoder1DBlock(
    mlp_dim=8,
    num_heads=2,
    dropout_rate=0.0,
    attention_dropout_rate=0.0,
  )
  x = jax.random.normal(jax.random.key(0), (64, 3, 8))
  params = block.init(jax.random.key(1), x, deterministic=True)
  y = block.apply(
    params, x, 0.5, deterministic=False, rngs={'dropout': jax.random.key(2)}
  )
  untouched = np.all(np.asarray(x == y), axis=(1, 2))
  # Both branches are dropped for a quarter of the images, tokens together.
  assert 4 <= untouched.sum() <= 32
  assert np.all(np.any(np.asarray(x != y), axis=2)[~untouched])


def test_stochastic_depth_scales_what_it_keeps():
  block = models.Encoder1DBlock(
    mlp_dim=8,
    num_heads=2,
    dropout_rate=0.0,
    attention_dropout_rate=0.0,
  )
  x = jax.random.normal(jax.random.key(0), (40, 3, 8))
  params = block.init(jax.random.key(1), x, deterministic=True)['params']
  mlp = params['MlpBlock_0'] | {
    'Dense_1': jax.tree.map(jnp.zeros_like, params['MlpBlock_0']['Dense_1'])
  }
  params = {'params': params | {'MlpBlock_0': mlp}}  # Attention alone is left.
  branch = block.apply(params, x, deterministic=True) - x
  rngs = {'dropout': jax.random.key(2)}
  got = block.apply(params, x, 0.75, deterministic=False, rngs=rngs) - x
  kept = np.any(np.asarray(got) != 0, axis=(1, 2))
  assert 2 <= kept.sum() <= 20
  np.testing.assert_allclose(got[kept], 4 * branch[kept], atol=1e-5)


def test_head_bias_init():
  model = models.get_model('testing', num_classes=3, head_bias_init=-2.0)
  params = models.init_params(model, (16, 16, 3))
  np.testing.assert_array_equal(params['head']['bias'], [-2.0] * 3)


def test_models_refuse_wrong_classifiers_and_small_images():
  model = models.get_model('testing', num_classes=3, classifier='mean')
  with pytest.raises(ValueError, match="'mean', must be one of .*'gap'"):
    models.init_params(model, (16, 16, 3))
  model = models.get_model('testing', num_classes=3)
  with pytest.raises(ValueError, match='8x32 pixels hold no patch of 16x16'):
    models.init_params(model, (8, 32, 3))


@pytest.mark.parametrize(
  'name, gflop', [('ViT-B_16', 35.1), ('ViT-S_16', 9.2), ('ViT-L_16', 123.1)]
)
def test_forward_flops_equal_published(name, gflop):
  model = models.get_model(name, num_classes=1000)
  got = flops.forward_flops(model, (224, 224, 3)) / 1e9
  assert got == pytest.approx(gflop, rel=0.01)


@pytest.mark.parametrize('scan', [False, True])
def test_flops_include_cudnn_attention(scan):
  config = model_configs.get_model_config('ViT-Ti_16').to_dict()
  plain, cudnn = (
    models.from_config(
      {
        **config,
        'transformer': {
          **config['transformer'],
          'attention': attention,
          'scan_layers': scan,
        },
      },
      num_classes=3,
    )
    for attention in ('xla', 'cudnn')
  )
  shape = (224, 224, 3)
  assert flops.forward_flops(cudnn, shape) == flops.forward_flops(plain, shape)
  assert flops.train_flops(cudnn, shape) == flops.train_flops(plain, shape)


def test_forward_flops_are_close_to_the_compiler():
  model, params, io = load_case('vit_token')
  compiled = (
    jax.jit(lambda p, x: model.apply({'params': p}, x, train=False))
    .lower(params, io['inputs'][:1])
    .compile()
  )
  counted = compiled.cost_analysis()['flops']
  ours = flops.forward_flops(model, (32, 32, 3))
  assert ours == pytest.approx(counted, rel=0.2)


def test_parameter_table_stacks_equal_blocks():
  model = models.get_model('ViT-Ti_16', num_classes=1000)
  params = models.abstract_params(model, (224, 224, 3))
  table = models.parameter_table(params)
  assert '5,717,416 in all' in table
  assert 'encoderblock/MlpBlock_0/Dense_0/kernel' in table
  assert '(12, 192, 768)' in table
