"""Every run file loads, every setting is read, every wrong one is refused."""

import ast
import json
import re

from conftest import REPOSITORY
from conftest import run_file
import ml_collections
import pytest

from vit_jax import build
from vit_jax import errors
from vit_jax import inference_time
from vit_jax.configs import common
from vit_jax.configs import durations
from vit_jax.configs import images
from vit_jax.configs import models
from vit_jax.configs import resolved
from vit_jax.configs import validate

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
    ('batch', 0, 'give --config.batch=N'),
    ('model_name', 'b17', "no model 'b17'"),
    ('model_name', 'lit_b16b', 'classifies no images'),
    ('image_size', 20, 'too small for a patch of ViT-B_32'),
  ],
)
def test_inference_time_refuses(name, value, message):
  _, config = load('inference_time')
  config.batch = config.num_classes = config.image_size = 32
  config[name] = value
  with pytest.raises(errors.UserError, match=message):
    inference_time.check(config)


def test_a_data_set_needs_no_preset():
  config = common.with_dataset(common.get_config(), 'svhn_cropped')
  assert (config.dataset, config.pp.train) == ('svhn_cropped', 'train')


def test_run_files_say_what_argument_they_need():
  with pytest.raises(ValueError, match='vit.py:b16,cifar10 say'):
    load('vit', 'b16')
  with pytest.raises(ValueError, match="no model 'b17'. Available: testing"):
    load('vit', 'b17,cifar10')
  with pytest.raises(ValueError, match='folder.py:b16,/path/to/data say'):
    load('folder', 'b16')


def fields(config, prefix='config'):
  for name in config.keys():  # noqa: SIM118
    value = config[name]
    if isinstance(value, ml_collections.ConfigDict):
      yield from fields(value, f'{prefix}.{name}')
    else:
      yield f'{prefix}.{name}'


def test_presets_are_those_of_augreg():
  """Fig. 4 of arXiv:2106.10270 names them, big_vision has the numbers."""
  config = load('digits')[1]
  want = {
    '': ((), 0.0),
    'none': ((), 0.0),
    'light1': ((2, 0), 0.0),
    'light2': ((2, 10), 0.2),
    'medium1': ((2, 15), 0.2),
    'medium2': ((2, 15), 0.5),
    'strong1': ((2, 20), 0.5),
    'strong2': ((2, 20), 0.8),
  }
  assert set(want) == {'', *images.AUGREG}
  for name, settings in want.items():
    config.pp.augmentation = name
    pp = resolved.with_defaults(config).pp
    assert (pp.randaugment, pp.mixup) == settings


def test_presets_and_single_settings():
  config = load('digits')[1]
  config.pp.mixup = 0.3
  pp = resolved.with_defaults(config).pp
  assert (pp.randaugment, pp.mixup) == ((), 0.3)
  config.pp.augmentation = 'light2'
  message = "mixup is 0.3, 0.2 in config.pp.augmentation = 'light2'. Set one"
  with pytest.raises(errors.UserError, match=message):
    validate.validate(config)
  # What the preset says, or what it leaves open.
  config.pp.mixup = 0.2
  config.pp.cutmix = 1.0
  validate.validate(config)
  filled = resolved.with_defaults(config)
  validate.validate(filled)
  assert filled.pp.randaugment == (2, 10)
  config.pp.randaugment = (2, 9)
  with pytest.raises(
    errors.UserError, match=r'randaugment is \(2, 9\), \(2, 10'
  ):
    validate.validate(config)


def test_a_part_of_a_batch_must_have_two_images_to_mix():
  config = load('digits')[1]
  config.accum_steps = config.batch
  validate.validate(config)
  config.pp.augmentation = 'light1'
  validate.validate(config)
  config.pp.augmentation = 'light2'
  with pytest.raises(errors.UserError, match='accum_steps is 128, as many as'):
    validate.validate(config)


def test_augmentation_is_built():
  config = load('digits')[1]
  data = build.data(resolved.with_defaults(config))
  assert data.mix is None
  assert data.train.is_raw
  assert data.test.is_raw
  assert data.preprocess.on_device
  config.pp.augmentation = 'medium2'
  config.pp.pad = 1
  config.pp.resize_test = 9
  config.pp.color_jitter = (0.1, 0.1, 0.1, 0.0)
  data = build.data(resolved.with_defaults(config))
  assert (data.mix.mixup, data.mix.cutmix, data.mix.num_classes) == (0.5, 0, 10)
  assert not data.train.is_raw
  assert not data.test.is_raw
  assert not data.preprocess.on_device
  assert data.train_transform.randaugment == (2, 15)
  assert data.train_transform.pad == data.preprocess.pad == 1
  assert data.eval_transform.resize == data.preprocess.resize_test == 9
  assert data.preprocess.color_jitter == (0.1, 0.1, 0.1, 0.0)


def test_every_setting_is_read():
  reads = set()
  for path in (REPOSITORY / 'vit_jax').rglob('*.py'):
    if path.parent.name == 'configs' and path.name == 'validate.py':
      continue
    for node in ast.walk(ast.parse(path.read_text())):
      if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        reads.add(ast.unparse(node))
  names = list(fields(common.get_config()))
  assert len(names) > 40
  # The mesh is passed on as a whole; epochs become steps, `freeze` is read of
  # the config of a stage.
  epochs = {f'config.{name}' for name in durations.EPOCHS.values()}
  unread = set(names) - reads - epochs - {'config.freeze'}
  unread = [n for n in unread if 'mesh' not in n]
  assert not unread


def test_settings_reach_the_model():
  config = load('digits')[1]
  config.stochastic_depth_rate = 0.25
  config.layer_norm_epsilon = 1e-3
  config.exact_gelu = True
  config.remat = 'full'
  config.scan_layers = True
  config.dtype = 'bfloat16'
  config.head_bias_init = -3.0
  model = build.model(config, num_classes=7)
  assert dict(model.transformer) == {
    'stochastic_depth_rate': 0.25,
    'layer_norm_epsilon': 1e-3,
    'exact_gelu': True,
    'attention': 'xla',
    'remat': 'full',
    'scan_layers': True,
    'attention_dropout_rate': 0.0,
    'dropout_rate': 0.0,
    'mlp_dim': 128,
    'num_heads': 4,
    'num_layers': 4,
  }
  got = (model.num_classes, model.dtype, model.head_bias_init)
  assert got == (7, 'bfloat16', -3.0)


@pytest.mark.parametrize(
  'name, value, message',
  [
    ('dtype', 'bf16', r"'bf16', must be one of .* mean 'bfloat16'"),
    ('loss', 'softmx', "Did you mean 'softmax'"),
    ('total_steps', None, 'config.total_steps must be set'),
    ('base_lr', -0.1, 'config.base_lr is -0.1, must be at least 0'),
    ('label_smoothing', 1.5, 'from 0.0 to 1.0'),
    ('warmup_steps', 2000, 'must be less than total_steps, 2000'),
    ('accum_steps', 3, 'must divide config.batch, 128'),
    ('pp.crop', None, 'config.pp.crop is None, must be the size'),
    ('pp.crop', (8, 8, 3), r'\(8, 8, 3\), must be the size'),
    ('pp.crop', 1, 'must hold a patch of 2x2'),
    ('pp.resize', 4, 'must be at least config.pp.crop, 8'),
    ('pp.crop_area', (0.5, 0.1), '0 < smallest <= largest'),
    ('pp.crop_ratio', (2.0, 1.0), r'crop_ratio is \(2.0, 1.0\), must be two'),
    (
      'pp.pad',
      8,
      'config.pp.pad is 8, must be at least 0 and less .*, 8 pixels',
    ),
    ('pp.pad_mode', 'edge', "'edge', must be 'zeros' or 'reflect'"),
    (
      'pp.resize_test',
      7,
      'config.pp.resize_test is 7, must be .* at least .* 8',
    ),
    (
      'pp.resize_test',
      (9, 7),
      r'resize_test is \(9, 7\), must be an integer or',
    ),
    ('pp.augmentation', 'light3', "'light3', must be '' or one of .*'light2'"),
    ('pp.randaugment', (2,), r'randaugment is \(2,\), must be \(number'),
    ('pp.randaugment', (2, 31), 'magnitude from 0 to 30'),
    ('pp.randaugment', (0.5, 10), r'is \(0.5, 10\), must be'),
    ('pp.color_jitter', (0.4,), r'must be \(brightness, contrast,'),
    ('pp.color_jitter', (0, 0, 0, 0.6), 'hue to 0.5'),
    ('pp.random_erasing', 1.5, 'random_erasing is 1.5, must be from 0 to 1'),
    ('pp.mixup', -0.1, 'config.pp.mixup is -0.1, must be at least 0'),
    ('pp.cutmix', float('nan'), 'config.pp.cutmix is nan, must be at least 0'),
    ('pp.train', 'train[:98%', 'must be a split such as'),
    ('model', None, 'config.model must be set'),
    ('model.classifier', 'unpooled', "must be one of .*'gap'"),
    ('model.transformer.num_heads', 5, 'divide config.model.hidden_size, 64'),
    ('num_threads', 0, 'from 1 to 1024'),
    ('base_lr', float('nan'), 'config.base_lr is nan'),
    ('seed', 2**63, 'config.seed is 9223372036854775808, must be from'),
    ('pp.crop_area', (0.5,), '0 < smallest <= largest'),
    ('model.patches.size', (2,), r'must be \(height, width\)'),
    ('model.transformer.num_heads', 0, 'must be at least 1'),
    ('model.transformer.num_layers', -1, 'must be at least 1'),
    ('model.transformer.dropout_rate', 1.5, 'from 0.0 to 0.999'),
  ],
)
def test_values_out_of_range_are_refused(name, value, message):
  _, config = load('digits')
  with config.unlocked(), config.ignore_type():
    *parents, last = name.split('.')
    node = config
    for parent in parents:
      node = node[parent]
    node[last] = value
  with pytest.raises(errors.UserError, match=message):
    validate.validate(config)


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
