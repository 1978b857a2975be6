"""Fine-tuning starts from weights of any format and uses their settings."""

import json
import logging
import shutil

from golden_files import GOLDEN
from golden_files import golden_json
import jax
from made import random_weights
import numpy as np
import pytest
from run_files import tiny

from vit_jax import checkpoint
from vit_jax import models
from vit_jax import predictor
from vit_jax import train
from vit_jax.configs import common
from vit_jax.configs import resolved
from vit_jax.configs import validate
from vit_jax.data import batching
from vit_jax.models import flops
from vit_jax.runtime import errors
from vit_jax.training import evaluate
from vit_jax.weights import formats

CONFIG = golden_json('index.json')['vit_token']['config']


def get_config(folder, pretrained, **settings):
  """Returns a config of two steps with a tiny learning rate."""
  config = tiny.get_config(str(folder)).unlock()
  config.model = None
  config.pretrained = str(pretrained)
  config.stochastic_depth_rate = 0.0
  config.optimizer = 'sgd'
  config.base_lr = 1e-8
  config.total_steps = 2
  config.warmup_steps = 1
  config.pp.crop = 32
  for name, value in settings.items():
    config[name] = value
  return config


def fine_tune(config, workdir):
  workdir.mkdir(exist_ok=True)
  train.train_and_evaluate(config, str(workdir))
  return checkpoint.read(workdir / 'artifact')


@pytest.fixture
def imagenet_folder(tmp_path):
  """Copies hf_vit with the normalisation of ImageNet."""
  folder = tmp_path / 'hf'
  shutil.copytree(GOLDEN / 'hf_vit', folder)
  preprocessor = {'image_mean': [0.4, 0.5, 0.6], 'image_std': [0.2, 0.3, 0.4]}
  (folder / 'preprocessor_config.json').write_text(json.dumps(preprocessor))
  return folder


@pytest.mark.slow
def test_weights_set_model_and_normalisation(
  image_folder, imagenet_folder, tmp_path
):
  config = get_config(image_folder, imagenet_folder)
  weights = fine_tune(config, tmp_path / 'run')
  assert weights.model['transformer']['layer_norm_epsilon'] == 1e-12
  assert weights.model['transformer']['exact_gelu'] is True
  assert weights.preprocessing.mean == (0.4, 0.5, 0.6)
  assert weights.preprocessing.std == (0.2, 0.3, 0.4)
  assert weights.class_names == ['blue', 'green', 'red']
  old = checkpoint.load(imagenet_folder)
  np.testing.assert_allclose(
    weights.params['embedding']['kernel'],
    old['embedding']['kernel'],
    atol=1e-5,
  )
  assert weights.params['head']['kernel'].shape == (32, 3)

  assert config.model is None
  assert config.pp.mean is None

  # Resuming and evaluating do not need the pretrained weights.
  shutil.rmtree(imagenet_folder)
  config.total_steps = 3
  again = fine_tune(config, tmp_path / 'run')
  assert again.model == weights.model
  assert (again.preprocessing.mean, again.preprocessing.std) == (
    weights.preprocessing.mean,
    weights.preprocessing.std,
  )
  metrics = evaluate.evaluate(config, str(tmp_path / 'run'))
  assert metrics['examples_test'] == 15

  # Classes in another order would be taken for each other.
  names = (tmp_path / 'run' / 'labels.txt').read_text()
  (tmp_path / 'run' / 'labels.txt').write_text('red\ngreen\nblue\n')
  with pytest.raises(errors.UserError, match='trained on red, green, blue'):
    evaluate.evaluate(config, str(tmp_path / 'run'))
  (tmp_path / 'run' / 'labels.txt').write_text(names)

  # The newest checkpoint can be read as weights.
  newest = checkpoint.read(tmp_path / 'run')
  assert newest.class_names == again.class_names
  assert newest.info['step'] == 3
  np.testing.assert_array_equal(
    newest.params['head']['kernel'], again.params['head']['kernel']
  )
  files = [str(p) for p in sorted((image_folder / 'test').rglob('*.jpg'))]
  predictions = predictor.Predictor(newest).predict(files)
  assert predictions == predictor.Predictor(again).predict(files)


@pytest.mark.slow
def test_settings_override_weights(image_folder, imagenet_folder, tmp_path):
  config = get_config(
    image_folder, imagenet_folder, exact_gelu=False, layer_norm_epsilon=1e-5
  )
  config.pp.mean = (0.5,)
  weights = fine_tune(config, tmp_path / 'run')
  transformer = weights.model['transformer']
  assert transformer['exact_gelu'] is False
  assert transformer['layer_norm_epsilon'] == 1e-5
  assert weights.preprocessing.mean == (0.5,)
  assert weights.preprocessing.std == (0.2, 0.3, 0.4)


def test_normalisation_changes_model_input(image_folder):
  config = tiny.get_config(str(image_folder)).unlock()
  config.pp.mean, config.pp.std = (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)
  config = resolved.with_defaults(config).unlock()
  data = batching.of_config(config)
  pixels = np.full((1, 16, 24, 3), 51, np.uint8)
  for images in (
    data.preprocess.eval(pixels),
    data.preprocess.train(jax.random.key(0), pixels),
  ):
    want = (0.2 - np.array([0.4, 0.5, 0.6])) / np.array([0.2, 0.3, 0.4])
    np.testing.assert_allclose(images[0, 0, 0], want, atol=1e-5)
  config.pp.mean = (0.5, 0.5)
  with pytest.raises(errors.UserError, match=r'pp.mean .* 1 value or 3'):
    batching.of_config(config)


@pytest.mark.slow
@pytest.mark.parametrize('name', ['vit_token.npz', 'timm_vit'])
def test_fine_tunes_from_other_formats(image_folder, tmp_path, name):
  config = get_config(image_folder, GOLDEN / name)
  weights = fine_tune(config, tmp_path / 'run')
  exact = name == 'timm_vit'
  assert weights.model['transformer']['exact_gelu'] is exact
  assert weights.model['transformer']['layer_norm_epsilon'] == 1e-6


@pytest.mark.slow
def test_mixer_fine_tunes_at_same_number_of_patches(image_folder, tmp_path):
  config = get_config(image_folder, GOLDEN / 'mixer.npz')
  assert 'tokens_mlp_dim' in fine_tune(config, tmp_path / 'a').model
  config.pp.crop = (16, 64)  # 16 patches in another grid.
  fine_tune(config, tmp_path / 'b')
  config.pp.crop = 48
  with pytest.raises(errors.UserError, match=r'mixes 16 patches, .* have 36'):
    fine_tune(config, tmp_path / 'c')


@pytest.mark.slow
def test_hybrid_fine_tunes_at_another_resolution(image_folder, tmp_path):
  config = get_config(image_folder, GOLDEN / 'hybrid_r_stem.npz')
  config.pp.crop = (48, 70)
  params = fine_tune(config, tmp_path / 'run').params
  posemb = params['Transformer']['posembed_input']['pos_embedding']
  assert posemb.shape == (1, 3 * 4 + 1, 32)


@pytest.mark.slow
def test_patch_kernel_adapts_to_channel_count(image_folder, tmp_path):
  config = get_config(image_folder, GOLDEN / 'vit_token.npz')
  config.pp.channels = 1
  with pytest.raises(errors.UserError, match='of 3 channels, these have 1'):
    fine_tune(config, tmp_path / 'a')
  config.adapt_channels = 'sum'
  grey = fine_tune(config, tmp_path / 'b')
  assert grey.image_shape == (32, 32, 1)
  kernel = checkpoint.load(GOLDEN / 'vit_token.npz')['embedding']['kernel']
  np.testing.assert_allclose(
    grey.params['embedding']['kernel'],
    kernel.sum(axis=2, keepdims=True),
    atol=1e-5,
  )
  file = str(next((image_folder / 'test').rglob('*.jpg')))
  assert predictor.Predictor(grey).predict(file)


@pytest.mark.slow
def test_resizes_patches_only_on_request(image_folder, tmp_path):
  config = get_config(image_folder, GOLDEN / 'vit_token.npz')
  config.model = {**CONFIG, 'patches': {'size': (4, 4)}}
  with pytest.raises(errors.UserError, match='adapt_patches=True'):
    fine_tune(config, tmp_path / 'a')
  config.adapt_patches = True
  weights = fine_tune(config, tmp_path / 'b')
  assert weights.params['embedding']['kernel'].shape == (4, 4, 3, 32)
  assert weights.image_shape == (32, 32, 3)


def test_pretrained_is_path_or_known_name():
  config = common.with_model(common.get_config(), str(GOLDEN / 'hf_vit'))
  assert config.model is None
  assert config.pretrained == str(GOLDEN / 'hf_vit')
  config = common.with_model(common.get_config(), 'augreg-L_16-384')
  assert config.model.model_name == 'ViT-L_16'
  assert config.pretrained == 'augreg-L_16-384'
  with pytest.raises(ValueError, match="no model 'b17'"):
    common.with_model(common.get_config(), 'b17')


def test_refuses_weights_and_config_without_model(image_folder, tmp_path):
  config = get_config(image_folder, GOLDEN / 'lit_bert.npz')
  with pytest.raises(errors.UserError, match='config.model must be set'):
    fine_tune(config, tmp_path)
  config.pretrained = ''
  with pytest.raises(errors.UserError, match='config.model must be set'):
    validate.validate(config)


def test_refuses_weights_of_another_variant(image_folder, tmp_path):
  config = get_config(image_folder, GOLDEN / 'hf_vit')
  config.model = {**CONFIG, 'hidden_size': 64}
  with pytest.raises(errors.UserError, match='does not fit golden: .* arrays'):
    fine_tune(config, tmp_path)


@pytest.mark.slow
def test_weights_by_path_set_image_size(image_folder, tmp_path, caplog):
  caplog.set_level(logging.INFO, logger='absl')
  config = get_config(image_folder, GOLDEN / 'vit_token.npz')
  config.pp.crop = None
  weights = fine_tune(config, tmp_path / 'run')
  assert weights.image_shape == (32, 32, 3)
  assert 'Position embeddings' not in caplog.text
  # Resuming reads the run, not the weights.
  config.pretrained = ''
  config.total_steps = 3
  with pytest.raises(errors.UserError, match='pp.crop is None, must be the'):
    fine_tune(config, tmp_path / 'run')
  config.pretrained = str(tmp_path / 'moved')
  assert fine_tune(config, tmp_path / 'run').info['step'] == 3
  config.pretrained = str(GOLDEN / 'vit_nonsquare.npz')
  with pytest.raises(errors.UserError, match='no weights decide it'):
    fine_tune(config, tmp_path / 'other')


def test_logs_cost_of_other_image_sizes(caplog):
  weights = checkpoint.read(GOLDEN / 'vit_token.npz')
  with caplog.at_level(logging.INFO, logger='absl'):
    larger = checkpoint.at_size(weights, (64, 96))
  cost = flops.forward_flops(
    larger.module().clone(num_classes=None), (64, 96, 3)
  )
  words = f'4x4 -> 8x12, 97 tokens, about {cost / 1e9:.3g} GFLOP an image'
  assert words in caplog.text
  caplog.clear()
  params = jax.eval_shape(
    lambda: models.init_params(larger.module(), (64, 96, 3))
  )
  params['head'] = larger.params['head']
  with caplog.at_level(logging.INFO, logger='absl'):
    checkpoint.adapt(weights, params, weights.model, grid=(8, 12))
    assert words in caplog.text
    caplog.clear()
    checkpoint.at_size(weights, (32, 32))
    assert 'Position embeddings' not in caplog.text


@pytest.mark.slow
def test_path_and_name_both_drop_pre_logits(image_folder, tmp_path):
  model = {**CONFIG, 'representation_size': 24}
  weights = random_weights(model, size=32)
  checkpoint.save(weights.params, tmp_path / 'x.npz')
  config = get_config(image_folder, tmp_path / 'x.npz')
  by_path = fine_tune(config, tmp_path / 'a')
  config.model = CONFIG  # A released name sets the same.
  by_name = fine_tune(config, tmp_path / 'b')
  jax.tree.map(  # Files have no dropout rate, which changes the head a little.
    lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5),
    by_path.params,
    by_name.params,
  )
  assert by_path.model['representation_size'] is None
  for to in ('huggingface', 'timm'):
    formats.convert(by_path, str(tmp_path / to), to)
  # A config can keep the layer.
  config.model = model
  assert 'pre_logits' in fine_tune(config, tmp_path / 'c').params
