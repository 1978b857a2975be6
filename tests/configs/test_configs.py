"""Every run file loads, every setting is read, every wrong one is refused."""

import json
import re

from conftest import GOLDEN
from conftest import REPOSITORY
from conftest import run_file
import pytest

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
  'sweep': 'b16,oxford_flowers102',
  'pretrain_mini': '/path/to/tiny_imagenet',
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
def test_run_files_load_and_say_how_they_run(name):
  module, config = load(name)
  if name == 'inference_time':  # Runs only with what it asks for.
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
def test_released_models_on_the_papers_data_sets(
  model, dataset, tfds_name, steps
):
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
    ('ViT-Mini_4', 32),
    (str(GOLDEN / 'vit_token.npz'), None),  # They tell.
  ],
)
def test_folders_start_at_a_size_that_suits_the_weights(weights, crop):
  _, config = load('folder', f'{weights},/path/to/data')
  assert config.pp.crop == crop
  validate.validate(config)


def test_the_official_defaults():
  config = load('vit', 'b16,cifar10')[1]
  want = {
    'accum_steps': 8,
    'base_lr': 0.01,
    'batch': 512,
    'batch_eval': 512,
    'checkpoint_every': 1_000,
    'decay_type': 'cosine',
    'eval_every': 100,
    'grad_norm_clip': 1.0,
    'optim_dtype': 'bfloat16',
    'progress_every': 10,
    'total_steps': 10_000,
    'trainer': 'train',
    'warmup_steps': 500,
  }
  assert {name: config[name] for name in want} == want
  assert config.pp.train == 'train[:98%]'


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


def test_the_official_mixer_run():
  _, config = load('mixer_base16_cifar10')
  assert config.model == models.get_mixer_b16_config()
  assert (config.pp.crop, config.pp.train) == (224, 'train[:98%]')
  assert (config.total_steps, config.base_lr) == (10_000, 0.03)


def test_inference_time_measures_the_steps_it_says(tmp_path):
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
def test_inference_time_refuses(name, value, message):
  _, config = load('inference_time')
  config.batch = config.num_classes = config.image_size = 32
  config[name] = value
  with pytest.raises(errors.UserError, match=message):
    inference_time.check(config)


def test_other_run_files_are_not_measured():
  _, config = load('digits')
  config.trainer = 'inference_time'
  with pytest.raises(errors.UserError, match='give --config=configs/inference'):
    inference_time.check(config)


def test_a_data_set_needs_no_preset():
  config = common.with_dataset(common.get_config(), 'svhn_cropped')
  assert (config.dataset, config.pp.train) == ('svhn_cropped', 'train')


def test_run_files_say_what_argument_they_need():
  with pytest.raises(ValueError, match='such as vit.py:b16,cifar10'):
    load('vit', 'b16')
  with pytest.raises(ValueError, match="no model 'b17'. Available: testing"):
    load('vit', 'b17,cifar10')
  with pytest.raises(ValueError, match='such as folder.py:b16,/path/to/data'):
    load('folder', 'b16')


def test_pretraining_as_published():
  _, imagenet = load('pretrain')
  _, other = load('pretrain', 'l16,/path/to/imagenet21k')
  got = [
    (c.total_epochs, c.base_lr, c.decay_type, c.weight_decay)
    for c in (imagenet, other)
  ]
  assert got == [(300.0, 0.003, 'cosine', 0.3), (90.0, 0.001, 'linear', 0.03)]
  for config in (imagenet, other):
    assert (config.batch, config.warmup_steps) == (4096, 10_000)
    assert config.model.transformer.dropout_rate == 0.1
  _, config = load('pretrain_augreg', 'ti16,/path')
  assert config.pp.augmentation == 'light1'
  _, config = load('sweep', 'l16,imagenet2012')
  assert config.sweep.base_lr == (0.003, 0.01, 0.03, 0.06)
  assert (config.sweep.train, config.sweep.holdout, config.total_steps) == (
    'train[:99%]',
    'train[99%:]',
    20_000,
  )


@pytest.mark.parametrize('variant', ['b16', 'wide', 'decay', 'narrow'])
def test_variants_of_tiny_imagenet(variant):
  _, config = load('tiny_imagenet', f'{variant},/path')
  validate.validate(config)
  assert (config.pp.crop, config.pp.resize) == (224, 256)
  with pytest.raises(ValueError, match='needs one of b16'):
    load('tiny_imagenet', variant)


def test_fixed_positions_are_of_vits():
  _, config = load('digits')
  config = config.copy_and_resolve_references().unlock()
  config.posemb = 'sincos2d'
  validate.validate(config)
  config.model = models.get_model_config('mixer_b16')
  config.pp.crop = 32
  with pytest.raises(errors.UserError, match='posemb .* only a ViT'):
    validate.validate(config)
