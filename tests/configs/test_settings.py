"""Single settings: presets, where they are read, what is refused."""

import ast

from golden_files import REPOSITORY
import ml_collections
import pytest
from runs import run_file

from vit_jax import models
from vit_jax.configs import arguments
from vit_jax.configs import common
from vit_jax.configs import images
from vit_jax.configs import resolved
from vit_jax.configs import validate
from vit_jax.data import batching
from vit_jax.models import attention
from vit_jax.models import blocks
from vit_jax.models import losses
from vit_jax.runtime import errors


def digits():
  return run_file('configs/digits.py').get_config()


def fields(config, prefix='config'):
  for name in config.keys():  # noqa: SIM118
    value = config[name]
    if isinstance(value, ml_collections.ConfigDict):
      yield from fields(value, f'{prefix}.{name}')
    else:
      yield f'{prefix}.{name}'


def test_augmentation_presets_equal_augreg():
  """Fig. 4 of arXiv:2106.10270 names them, big_vision has the numbers."""
  config = digits()
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


def test_single_settings_that_contradict_a_preset_are_refused():
  config = digits()
  config.pp.mixup = 0.3
  pp = resolved.with_defaults(config).pp
  assert (pp.randaugment, pp.mixup) == ((), 0.3)
  config.pp.augmentation = 'light2'
  message = "mixup is 0.3, 0.2 in config.pp.augmentation = 'light2'. Set one"
  with pytest.raises(errors.UserError, match=message):
    validate.validate(config)
  # Equal to the preset, or not part of it.
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


def test_mixing_single_images_is_refused():
  config = digits()
  config.accum_steps = config.batch
  validate.validate(config)
  config.pp.augmentation = 'light1'
  validate.validate(config)
  config.pp.augmentation = 'light2'
  with pytest.raises(errors.UserError, match='accum_steps is 128, as many as'):
    validate.validate(config)


def test_augmentation_is_built():
  config = digits()
  data = batching.of_config(resolved.with_defaults(config))
  assert data.mix is None
  assert data.train.is_raw
  assert data.test.is_raw
  assert data.preprocess.on_device
  config.pp.augmentation = 'medium2'
  config.pp.pad = 1
  config.pp.resize_test = 9
  config.pp.color_jitter = (0.1, 0.1, 0.1, 0.0)
  data = batching.of_config(resolved.with_defaults(config))
  assert (data.mix.mixup, data.mix.cutmix, data.mix.num_classes) == (0.5, 0, 10)
  assert not data.train.is_raw
  assert not data.test.is_raw
  assert not data.preprocess.on_device
  assert data.train_transform.randaugment == (2, 15)
  assert data.train_transform.pad == data.preprocess.pad == 1
  assert data.eval_transform.resize == data.preprocess.resize_test == 9
  assert data.preprocess.color_jitter == (0.1, 0.1, 0.1, 0.0)


def test_stages_that_are_not_dicts_are_refused():
  for stages in ((2,), ({'batch': 8},)):
    config = digits().unlock()
    config.stages = stages
    with pytest.raises(errors.UserError, match='config.stages'):
      validate.validate(config)


def test_every_setting_is_read():
  reads = set()
  for path in (REPOSITORY / 'vit_jax').rglob('*.py'):
    if path.parent.name == 'configs' and path.stem in ('validate', 'images'):
      continue
    for node in ast.walk(ast.parse(path.read_text())):
      if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        reads.add(ast.unparse(node))
  reads |= {f'config.{read}' for read in reads if read.startswith('pp.')}
  names = list(fields(common.get_config()))
  assert len(names) > 40
  # The mesh and the columns of a table are passed on as a whole; epochs become steps, `freeze` is read of
  # the config of a stage.
  epochs = {f'config.{name}' for name in resolved.EPOCHS.values()}
  unread = set(names) - reads - epochs - {'config.freeze'}
  unread = [n for n in unread if n.split('.')[1] not in ('mesh', 'columns')]
  assert not unread


def test_settings_reach_the_model():
  config = digits()
  config.stochastic_depth_rate = 0.25
  config.patch_dropout = 0.5
  config.layer_norm_epsilon = 1e-3
  config.exact_gelu = True
  config.remat = 'full'
  config.scan_layers = True
  config.dtype = 'bfloat16'
  config.head_bias_init = -3.0
  model = models.from_config(arguments.of_model(config), num_classes=7)
  assert dict(model.transformer) == {
    'stochastic_depth_rate': 0.25,
    'patch_dropout': 0.5,
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
    ('distill.loss', 'sift', "config.distill.loss is 'sift'.*mean 'soft'"),
    ('distill.temperature', 0.0, 'config.distill.temperature is 0.0, must be'),
    ('loss', 'softmx', "Did you mean 'softmax'"),
    ('total_steps', None, 'config.total_steps must be set'),
    ('batch', None, 'config.batch is None, must be at least 1'),
    ('base_lr', float('inf'), 'must be at least 0.0 and finite'),
    ('evaluators', ('0shot',), r"\('0shot',\), must be a tuple of 'knn'"),
    ('loggers', ('wand',), r"\('wand',\), must be some of .*'wandb'"),
    ('profile_steps', (3, 2), r'\(3, 2\), must be \(first, last\)'),
    ('profile_steps', (1, 2.5), r'\(1, 2.5\), must be \(first, last\)'),
    # Values of another type than the rule reads.
    ('profile_steps', ('1', '2'), r"\('1', '2'\), must be \(first, last\)"),
    ('evaluators', (10,), r"\(10,\), must be a tuple of 'knn'"),
    ('loggers', (['a'],), r"\(\['a'\],\), must be some of"),
    ('label_smoothing', '0.1', "label_smoothing is '0.1', must be from 0"),
    ('base_lr', -0.1, 'config.base_lr is -0.1, must be at least 0'),
    ('label_smoothing', 1.5, 'from 0.0 to 1.0'),
    ('warmup_steps', -1, 'config.warmup_steps is -1, must be at least 0'),
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
      'config.pp.pad is 8, must be less than the image, 8 pixels',
    ),
    ('pp.pad_mode', 'edge', "'edge', must be one of \\('zeros', 'reflect'\\)"),
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
    ('pp.augmentation', 'light3', "'light3', must be one of .*'light2'"),
    ('pp.randaugment', (2,), r'randaugment is \(2,\), must be \(number'),
    ('pp.randaugment', (2, 31), 'magnitude from 0 to 30'),
    ('pp.randaugment', (0.5, 10), r'is \(0.5, 10\), must be'),
    ('pp.color_jitter', (0.4,), r'must be \(brightness, contrast,'),
    ('pp.color_jitter', (0, 0, 0, 0.6), 'hue at most 0.5'),
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
    ('model.transformer.num_heads', 0, 'must be an integer of at least 1'),
    ('model.transformer.num_layers', -1, 'must be an integer of at least 1'),
    ('model.transformer.mlp_dim', 64.0, 'mlp_dim is 64.0, must be an integer'),
    ('model.transformer.mlp_dim', None, 'mlp_dim is None, must be an integer'),
    ('model.transformer.num_layers', '2', "num_layers is '2', must be an"),
    ('model.transformer.stochastic_depth_rate', 1.5, 'rate is 1.5, must be'),
    ('model.hidden_size', True, 'hidden_size is True, must be an integer'),
    ('model.representation_size', -4, 'representation_size is -4, must be'),
    ('model.num_registers', 1.5, 'num_registers is 1.5, must be an integer'),
    ('model.fc_norm', 'x', "fc_norm is 'x', must be one of"),
    ('model.patches.typo', 1, "patches has no setting 'typo'"),
    ('model.transformer.block', {'biases': None}, 'biases is None, must be'),
    ('model.transformer.block', {'causal': True}, "Set .*classifier='gap'"),
    ('model.resnet', {'num_layers': (1,)}, 'width_factor is None, must be'),
    (
      'model.resnet',
      {'num_layers': (1,), 'width_factor': 0.25},
      'width_factor is 0.25, must be a multiple of 0.5',
    ),
    ('model.transformer.dropout_rate', 1.5, 'from 0.0 to 0.999'),
  ],
)
def test_values_out_of_range_are_refused(name, value, message):
  config = digits()
  with config.unlocked(), config.ignore_type():
    *parents, last = name.split('.')
    node = config
    for parent in parents:
      node = node[parent]
    node[last] = value
  with pytest.raises(errors.UserError, match=message):
    validate.validate(config)


def test_settings_of_newer_parts_that_do_not_fit_are_refused():
  for changes, message in (
    ({'distillation': 'head', 'fc_norm': True}, 'without a LayerNorm'),
    ({'rotary_base': 100.0}, 'cannot be left out'),
  ):
    config = digits()
    config.model.update(changes)
    config.model.transformer.patch_dropout = 0.5
    with pytest.raises(errors.UserError, match=message):
      validate.validate(config)


def test_seeds_and_rates_of_a_sweep_are_told_apart():
  config = common.with_sweep(digits(), (0.1,))
  config.sweep.seeds = (1_000_001, 1_000_002)
  validate.validate(config)
  config.sweep.seeds = (3, 3)
  with pytest.raises(errors.UserError, match=r'seeds is \(3, 3\), must have'):
    validate.validate(config)
  config.sweep.seeds = (3,)
  config.sweep.base_lr = (0.1000001, 0.1000002)
  with pytest.raises(errors.UserError, match='its first six digits'):
    validate.validate(config)


# Any text, a type that `ConfigDict` checks, or checked with other settings.
_WITHOUT_RULE = {
  'model',
  'stages',
  *('pretrained', 'pretrained_dir', 'dataset', 'tfds_data_dir', 'vocabulary'),
  'distill.teacher',
  *('adapt_patches', 'scan_layers', 'report', 'lock_image_tower'),
  *('pp.balance_classes', 'pp.flip', 'pp.exif'),
  *(f'columns.{field}' for field in common.get_config().columns),
}


def test_settings_have_a_rule_that_accepts_their_default():
  config = common.get_config()
  names = {n.removeprefix('config.') for n in fields(config)}
  assert names == _WITHOUT_RULE ^ set(common.RULES)
  for name, rule in common.RULES.items():
    rule.check(config[name] if '.' not in name else rule.default, name)
    assert rule.default is None or not rule.kind


def test_choices_equal_the_tables_of_implementations():
  tables = {
    'loss': (*losses.LOSSES, *losses._OF_DIFFERENCE),
    'attention': ('auto', *attention.ATTENTION),
    'remat': ('', *blocks.REMAT_POLICIES),
  }
  for name, table in tables.items():
    assert set(common.RULES[name].choices) == set(table)
