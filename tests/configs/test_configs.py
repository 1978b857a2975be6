"""Run files load, and select the model, data and image size of their argument."""

import json
import re

from golden_files import GOLDEN
from golden_files import REPOSITORY
import pytest
from runs import run_file

import vit_jax
from vit_jax import inference_time
from vit_jax.configs import common
from vit_jax.configs import models
from vit_jax.configs import validate
from vit_jax.runtime import errors

ARGUMENTS = {
  'vit': 'b16,cifar10',
  'folder': 'b16,/path/to/data',
  'augreg': 'R_Ti_16',
  'lit_folder': 'lit_l16ti,/path/to/data',
  'clip_folder': '/path/to/clip,/path/to/data',
  'siglip_folder': '/path/to/siglip,/path/to/data',
  'sweep': 'b16,oxford_flowers102',
  'pretrain_mini': '/path/to/tiny_imagenet,40',
  'imagenette_scratch': '/path/to/imagenette',
  'pretrain': 'b16,imagenet2012',
  'pretrain_augreg': 's16,imagenet2012',
  'tiny_imagenet': 'ours,/path/to/tiny_imagenet',
  'tiny_imagenet_transfer': '/path/to/tiny_imagenet',
}


def load(name, argument=None):
  module = run_file(f'configs/{name}.py')
  argument = argument or ARGUMENTS.get(name)
  return module, module.get_config(*([argument] if argument else []))


RUN_FILES = sorted(p.stem for p in (REPOSITORY / 'configs').glob('*.py'))


@pytest.mark.parametrize('name', RUN_FILES)
def test_run_files_load_and_cite_their_command(name):
  module, config = load(name)
  if name == 'inference_time':  # It requires these settings.
    config.batch = config.num_classes = config.image_size = 32
    inference_time.check(config)
  else:
    validate.validate(config)
  assert config.is_locked
  command = re.search(r'--config=configs/(\w+)\.py', module.__doc__)
  assert command is not None
  assert command[1] == name


@pytest.mark.parametrize('model', ['b16', 'b32', 'l16', 'h14'])
@pytest.mark.parametrize(
  'dataset, tfds_name, steps',
  [
    ('cifar10', 'cifar10', 10_000),
    ('cifar100', 'cifar100', 10_000),
    ('imagenet', 'imagenet2012', 20_000),
  ],
)
def test_official_run_files_equal_vit(model, dataset, tfds_name, steps):
  _, config = load(f'{model}_{dataset}')
  assert config.dataset == tfds_name
  assert config.pretrained == models.get_model_config(model).model_name
  assert config.model == models.get_model_config(model)
  assert (config.total_steps, config.pp.crop) == (steps, 384)
  assert config == load('vit', f'{model},{tfds_name}')[1]


@pytest.mark.parametrize(
  'weights, crop',
  [
    ('b16', 384),
    ('augreg-B_16-224', 384),
    ('mixer_b16', 224),
    ('ViT-Mini_8', 64),
    (str(GOLDEN / 'vit_token.npz'), None),  # The weights decide.
  ],
)
def test_folder_crops_to_the_size_of_its_weights(weights, crop):
  _, config = load('folder', f'{weights},/path/to/data')
  assert config.pp.crop == crop
  validate.validate(config)


@pytest.mark.parametrize('argument', ['/images', '/images,32'])
def test_pretrain_mini_needs_one_of_its_sizes(argument):
  with pytest.raises(ValueError, match=f"and 40 or 64, not '{argument}'"):
    load('pretrain_mini', argument)


@pytest.mark.parametrize(
  'argument, pretrained',
  [('/images', 'ViT-B_16'), ('/images,ViT-Mini_8', 'ViT-Mini_8')],
)
def test_tiny_imagenet_transfer_takes_other_weights(argument, pretrained):
  _, config = load('tiny_imagenet_transfer', argument)
  assert (config.dataset, config.pretrained) == ('/images', pretrained)
  assert config.model.model_name == pretrained


def test_augreg_takes_a_model_or_a_file():
  name = 'R26_S_32-i21k-300ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0'
  _, config = load('augreg', name)
  assert config.pretrained == name
  assert config.pretrained_dir == 'gs://vit_models/augreg'
  assert config.model.model_name == 'R26+ViT-S_32'
  assert (config.pp.crop, config.pp.resize) == (384, 448)
  _, config = load('augreg', 'L_16')
  assert config.model.transformer.dropout_rate == 0
  with pytest.raises(ValueError, match="AugReg model 'L_32'.*R50_L_32"):
    load('augreg', 'L_32')


def test_inference_time_measures_the_given_steps(tmp_path):
  _, config = load('inference_time')
  config.model_name = 'testing'
  config.batch, config.num_classes, config.image_size = 4, 3, 32
  config.steps, config.initial_steps = 7, 2
  config.log_dir = 'speed'
  calls = []
  measured = inference_time.measure(lambda: calls.append(1), 2, 7)
  assert (len(measured), len(calls)) == (7, 2 + 7)
  result = inference_time.inference_time(config, str(tmp_path))
  assert set(result) == {
    f'imgs_sec_core_{name}' for name in ('min', 'max', 'mean', 'std')
  }
  low, mean, high = (
    result[f'imgs_sec_core_{n}'] for n in ('min', 'mean', 'max')
  )
  assert 0 < low <= mean <= high
  row = json.loads((tmp_path / 'speed' / 'metrics.jsonl').read_text())
  assert row == {'step': 0, **result}


@pytest.mark.parametrize(
  'name, value, message',
  [
    ('batch', 0, 'give config.batch=N'),
    ('model_name', 'b17', "no model 'b17'"),
    ('model_name', 'lit_b16b', 'which has no classes'),
    ('image_size', 20, 'too small for a patch of ViT-B_32'),
    ('dtype', 'bf16', "'bf16', must be one of .* mean 'bfloat16'"),
    ('initial_steps', -3, 'config.initial_steps is -3, must be at least 0'),
  ],
)
def test_inference_time_refuses_wrong_settings(name, value, message):
  _, config = load('inference_time')
  config.batch = config.num_classes = config.image_size = 32
  config[name] = value
  with pytest.raises(errors.UserError, match=message):
    inference_time.check(config)


def test_inference_time_refuses_other_run_files():
  _, config = load('digits')
  config.trainer = 'inference_time'
  with pytest.raises(errors.UserError, match='give --config=configs/inference'):
    inference_time.check(config)


def test_with_dataset_accepts_data_sets_without_preset():
  config = common.with_dataset(common.get_config(), 'svhn_cropped')
  assert (config.dataset, config.pp.train) == ('svhn_cropped', 'train')


def test_unknown_models_are_refused():
  with pytest.raises(ValueError, match="no model 'b17'. Available: testing"):
    load('vit', 'b17,cifar10')


@pytest.mark.parametrize('variant', ['b16', 'wide', 'decay', 'narrow'])
def test_tiny_imagenet_variants_are_valid(variant):
  _, config = load('tiny_imagenet', f'{variant},/path')
  validate.validate(config)
  assert (config.pp.crop, config.pp.resize) == (224, 256)
  with pytest.raises(ValueError, match='needs one of b16'):
    load('tiny_imagenet', variant)


def test_mixers_refuse_fixed_positions():
  _, config = load('digits')
  config = config.copy_and_resolve_references().unlock()
  config.posemb = 'sincos2d'
  validate.validate(config)
  config.model = models.get_model_config('mixer_b16')
  config.pp.crop = 32
  with pytest.raises(errors.UserError, match='posemb .* only a ViT'):
    validate.validate(config)


def test_settings_that_do_not_train_are_refused_in_one_line():
  config = vit_jax.run_file('inference_time')
  message = (
    r"config.pp is missing, .* 'inference_time'. vit-jax train runs them"
  )
  with pytest.raises(errors.UserError, match=message):
    validate.validate(config)
