"""Whatever works for a ViT works with the parts of newer papers."""

import dataclasses

import jax
from made import assert_same
from made import random_weights
import newer_parts
from newer_parts import MODELS
import numpy as np
from pictures import picture
from processes import run
import pytest
from runs import flat
from runs import tiny
from runs import tiny_lit

from vit_jax import checkpoint
from vit_jax import models
from vit_jax import predictor as predictor_lib
from vit_jax import train
from vit_jax.configs import spec
from vit_jax.configs import validate
from vit_jax.models import blocks
from vit_jax.models import flops
from vit_jax.runtime import errors
from vit_jax.runtime import sharding
from vit_jax.training import optimizers
from vit_jax.weights import artifact
from vit_jax.weights import programs
from vit_jax.weights import resized_positions

SHAPE = (16, 24, 3)
PATCHES = 6


@pytest.fixture(params=MODELS)
def name(request):
  return request.param


@pytest.fixture
def weights(name):
  return random_weights(MODELS[name], shape=SHAPE)


def trained(config, workdir):
  train.train_and_evaluate(config, str(workdir))
  return flat(workdir)


def test_predicts_with_features_and_attention(weights, name):
  predictor = predictor_lib.Predictor(weights)
  what, image = weights.spec, picture(0, *SHAPE[:2])
  [prediction] = predictor.predict(image)
  assert sum(p for _, p in prediction) == pytest.approx(1, abs=1e-5)
  tokens = predictor.features(image, pooling='tokens')
  assert tokens.shape == (1, what.num_prefix_tokens + PATCHES, 16)
  mean = predictor.features(image, pooling='gap')
  np.testing.assert_allclose(
    mean, tokens[:, what.num_prefix_tokens :].mean(1), atol=1e-5
  )
  features = predictor.features(image)
  assert features.shape == (1, {'dino': 32, 'deit': 16, 'map': 12}[name])
  if name == 'deit':
    np.testing.assert_allclose(features, tokens[:, :2].mean(1), atol=1e-5)
  if name == 'map':
    with pytest.raises(errors.UserError, match='no class token'):
      predictor.features(image, pooling='cls')
  attention = predictor.attention(image)
  length = what.num_prefix_tokens + PATCHES
  assert attention.shape == (1, 2, 2, length, length)
  np.testing.assert_allclose(attention.sum(-1), 1, atol=1e-5)
  assert predictor.rollout(image).shape == (1, 2, 3)


@pytest.mark.slow
def test_learns_resumes_and_is_read_again(image_folder, tmp_path, name):
  whole = trained(newer_parts.config(image_folder, name), tmp_path / 'whole')
  config = newer_parts.config(image_folder, name, steps=2)
  first = trained(config, tmp_path / 'parts')
  config = newer_parts.config(image_folder, name)
  assert_same(trained(config, tmp_path / 'parts'), whole)
  stuck = [k for k, x in whole.items() if np.array_equal(x, first[k])]
  # Softmax does not see the biases of keys.
  assert not [k for k in stuck if not k.endswith('key/bias')]
  weights = checkpoint.read(tmp_path / 'whole')
  again = checkpoint.read(tmp_path / 'whole' / 'artifact')
  assert_same(weights.params, again.params)


def test_scan_and_remat_change_nothing(weights):
  images = np.random.default_rng(0).normal(size=(2, *SHAPE)).astype(np.float32)

  def gradients(params, **changes):
    encoder = {**weights.model['transformer'], **changes}
    module = weights.module().clone(transformer=encoder)
    function = lambda params: jax.numpy.mean(
      module.apply({'params': params}, images, train=False) ** 2
    )
    return jax.jit(jax.grad(function))(params)

  want = gradients(weights.params)
  stacked = blocks.stack(weights.params)
  scanned = gradients(stacked, scan_layers=True, remat='full')
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6),
    want,
    blocks.unstack(scanned),
  )


@pytest.mark.slow
def test_eight_devices_equal_one(image_folder, tmp_path):
  paths = (str(image_folder), str(tmp_path))
  result = run('tests.newer_parts', *paths, devices=8, PYTHONPATH='.:tests')
  assert result.returncode == 0, result.stderr
  for name in MODELS:
    config = newer_parts.config(image_folder, name, checkpoint_every=0)
    one = trained(config, tmp_path / f'{name}_one')
    for key, x in flat(tmp_path / name).items():
      np.testing.assert_allclose(x, one[key], atol=1e-4, err_msg=key)


def test_rules_cover_parts(weights):
  axes = ('data', 'fsdp', 'model')
  mesh = jax.sharding.AbstractMesh((1, 2, 2), axes)
  params = jax.tree.map(lambda x: x, weights.params)
  placed = jax.tree_util.tree_leaves_with_path(sharding.place(mesh, params))
  for path, x in placed:
    if path[-1].key == 'kernel':
      axes = {axis for axis in x.sharding.spec if axis}
      # Five classes cannot be split.
      assert 'fsdp' in axes, path
  decayed = optimizers.decay_mask(params)
  assert not any(decayed.get(n) for n in ('cls', 'dist', 'reg'))
  assert not decayed.get('MAPHead_0', {}).get('probe')
  scales = optimizers.layer_scales(params, 0.5)
  for part in ('head', 'head_dist', 'MAPHead_0', 'projection'):
    assert set(jax.tree.leaves(scales.get(part, 1))) == {1.0}
  for part in ('cls', 'dist', 'reg', 'embedding'):
    assert set(jax.tree.leaves(scales.get(part, 0.125))) == {0.125}


def test_bfloat16_export_and_plan(weights, tmp_path):
  assert programs.export(weights, str(tmp_path / 'x.stablehlo')) < 1e-4
  rounded = {**weights.model, 'dtype': 'bfloat16'}
  half = dataclasses.replace(weights, model=rounded)
  image = picture(0, *SHAPE[:2])
  want, got = (
    predictor_lib.Predictor(w).features(image) for w in (weights, half)
  )
  assert 0 < np.abs(want - got).max() < 0.1
  assert flops.train_flops(weights.module(), SHAPE) > 0


@pytest.mark.slow
def test_fine_tuning_replaces_heads(weights, image_folder, tmp_path, name):
  artifact.save(tmp_path / 'weights', weights)
  config = newer_parts.config(image_folder, name, steps=1, base_lr=1e-8)
  config.model = None
  config.pretrained = str(tmp_path / 'weights')
  config.pp.crop = (32, 24)
  config.scan_layers = True
  new = trained(config, tmp_path / 'run')
  what = spec.of(MODELS[name])
  assert not any(key.startswith('projection') for key in new)
  for head in what.heads:
    assert new[f'{head}/bias'].shape == (3,)
  assert new['embedding/kernel'] == pytest.approx(
    weights.params['embedding']['kernel'], abs=1e-5
  )
  if position := what.position_embeddings:
    assert new[position].shape[1] == 12 + what.num_positioned


@pytest.mark.parametrize(
  'changes, message',
  [
    ({'distillation': 'yes'}, "model.distillation is 'yes', must be one of"),
    ({'num_registers': -1}, 'num_registers is -1, must be an integer of at'),
    ({'num_positioned': 5}, 'num_positioned is 5, but there are 1 tokens'),
    ({'posemb_resize': 'cubic'}, "Did you mean 'bicubic'"),
    ({'rotary_base': 0.5}, 'rotary_base is 0.5, must be at least 1'),
    ({'rotary_base': 9.0, 'hidden_size': 12}, 'width 4 divides, not 6'),
    ({'block': {'layerscale': 1.0}}, "no setting 'layerscale'.*'layer_scale'"),
    ({'block': {'activation': 'swish'}}, "activation is 'swish', must be one"),
    ({'block': {'biases': 'vq'}}, "block.biases is 'vq', must be one of"),
    ({'block': None}, 'block is None: leave it out'),
    ({'classifier': 'unpooled'}, 'need one output per image'),
    ({'patches': {'size': 8}}, r'model.patches.size is 8, must be \(height'),
    ({'patches': {'size': (8, 0)}}, r'patches.size is \(8, 0\), must be'),
    ({'patches': {'size': ('8', '8')}}, r"size is \('8', '8'\), must be"),
  ],
)
def test_settings_that_cannot_work_are_refused(tmp_path, changes, message):
  config = tiny(tmp_path).unlock()
  if 'block' in changes:
    config.model.transformer.block = changes['block']
  else:
    for name, value in changes.items():
      config.model[name] = value
  with pytest.raises(errors.UserError, match=message):
    validate.validate(config)


def test_settings_that_a_model_lacks_are_refused(tmp_path, captions):
  def message(config, *groups, name):
    group = config.unlock().model
    for key in groups:
      group = group[key]
    group[name] = 4
    with pytest.raises(errors.UserError) as e:
      models.from_config(validate.validate(config).model)
    return str(e.value)

  vit, pair = tiny(tmp_path), tiny_lit(captions)
  start = 'config.model has no setting'
  assert message(vit, name='num_register') == (
    f"{start} 'num_register'. Did you mean 'num_registers'?"
  )
  del vit.model.num_register
  start = 'config.model.transformer has no setting'
  assert message(vit, 'transformer', name='num_layer') == (
    f"{start} 'num_layer'. Did you mean 'num_layers'?"
  )
  assert message(pair, 'image', name='heads').startswith(
    "config.model.image has no setting 'heads'."
  )


def test_dropout_has_a_default(tmp_path):
  config = tiny(tmp_path).unlock()
  for name in ('dropout_rate', 'attention_dropout_rate'):
    del config.model.transformer[name]
  validate.validate(config)


def test_every_way_to_resize_positions_is_a_setting():
  assert tuple(resized_positions.METHODS) == spec.RESIZES
