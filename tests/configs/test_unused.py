"""A setting on the command line has an effect, or is refused."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from processes import call_command
import pytest
from runs import arguments
from runs import run_file
from runs import tiny_lit

from vit_jax import models
from vit_jax.configs import arguments as arguments_lib
from vit_jax.configs import common
from vit_jax.configs import labels
from vit_jax.configs import models as model_configs
from vit_jax.configs import resolved
from vit_jax.configs import unused
from vit_jax.configs import validate
from vit_jax.runtime import errors
from vit_jax.training import stages

# Unusual values of all settings of a model outside `config.model`.
OF_MODELS = {
  'attention': 'cudnn',
  'bias_init': -3.0,
  'dtype': 'bfloat16',
  'exact_gelu': True,
  'head_bias_init': -2.0,
  'layer_norm_epsilon': 1e-3,
  'patch_dropout': 0.5,
  'remat': 'full',
  'scan_layers': True,
  'stochastic_depth_rate': 0.25,
  'temperature_init': 3.0,
}

# Unusual values of all settings of an optimizer and its learning rate.
OF_OPTIMIZERS = {
  'base_lr': 0.5,
  'beta2': 0.3,
  'cooldown_steps': 4,
  'decay_type': 'linear',
  'grad_norm_clip': 0.01,
  'layer_decay': 0.5,
  'momentum': 0.5,
  'optim_dtype': 'float32',
  'timescale': 7,
  'warmup_steps': 2,
  'weight_decay': 0.3,
  'weight_decay_on': 'all',
}


def digits(**settings):
  config = resolved.with_defaults(run_file('configs/digits.py').get_config())
  with config.unlocked():
    config.update(settings)
  return config


def family(name, captions):
  if name == 'lit':
    return tiny_lit(captions)
  config = digits()
  with config.unlocked():
    if name != 'vit':
      config.model = model_configs.get_model_config(
        {'mixer': 'mixer_b16', 'hybrid': 'r_ti16', 'resnet': 'r_ti16'}[name]
      )
      config.pp.crop = 64
    if name == 'resnet':
      config.model.transformer = None
      config.model.classifier = 'gap'
  return config


def effect_or_reason(config, name, value, effect, before):
  """Returns whether `effect` differs from `before`, and why a setting is refused."""
  with config.unlocked():
    config[name] = value
  try:
    validate.validate(config)
    unused.refuse(config, (name,))
  except errors.UserError as e:
    return False, str(e)
  return effect(config) != before, ''


@pytest.mark.parametrize('name', OF_MODELS)
@pytest.mark.parametrize('kind', ['vit', 'hybrid', 'resnet', 'mixer', 'lit'])
def test_settings_of_models_change_the_model_or_are_refused(
  captions, kind, name
):
  classes = {} if kind == 'lit' else {'num_classes': 3}

  def effect(config):
    return repr(models.from_config(arguments_lib.of_model(config), **classes))

  config = family(kind, captions)
  has_effect, reason = effect_or_reason(
    config, name, OF_MODELS[name], effect, effect(config)
  )
  assert has_effect != bool(reason)
  assert not reason or name in reason


def of_optimizer(optimizer, decay_type, weight_decay):
  return digits(
    optimizer=optimizer,
    decay_type=decay_type,
    optim_dtype='bfloat16',
    total_steps=5,
    warmup_steps=0,
    weight_decay=weight_decay,
  )


@functools.cache
def parameters():
  """Parameters with the names of those that the optimizers tell apart."""
  names = 'head', 'Transformer/encoderblock_0/LayerNorm_0'
  keys = jax.random.split(jax.random.key(0), 4)
  return {
    names[0]: {'kernel': jax.random.normal(keys[0], (3, 5))},
    'Transformer': {
      'encoderblock_0': {
        'MlpBlock_3': {
          'kernel': jax.random.normal(keys[1], (3, 5)),
          'bias': jax.random.normal(keys[2], (5,)),
        }
      }
    },
  }


def updates_of(config):
  """Returns the bytes of three updates."""
  params = parameters()
  tx, _ = stages.optimizer(config, params)
  state = tx.init(params)
  results = []
  for scale in (1.0, 3.0, 0.2):
    grads = jax.tree.map(lambda x, s=scale: jnp.cos(s * x), params)
    updates, state = tx.update(grads, state, params)
    results += jax.tree.leaves(updates)
  return [np.asarray(x).tobytes() for x in results]


@functools.cache
def usual_updates(*settings):
  """As `updates_of`, of the settings of `of_optimizer`."""
  return updates_of(of_optimizer(*settings))


@pytest.mark.parametrize('name', OF_OPTIMIZERS)
@pytest.mark.parametrize('optimizer', common.RULES['optimizer'].choices)
@pytest.mark.parametrize('decay_type', ['constant', 'rsqrt'])
def test_settings_of_optimizers_change_a_step_or_are_refused(
  optimizer, decay_type, name
):
  weight_decay = 0.0 if name == 'weight_decay' else 0.1
  settings = optimizer, decay_type, weight_decay
  has_effect, reason = effect_or_reason(
    of_optimizer(*settings),
    name,
    OF_OPTIMIZERS[name],
    updates_of,
    usual_updates(*settings),
  )
  assert has_effect != bool(reason)
  is_read = {'beta2': optimizer != 'sgd'}
  is_read['timescale'] = decay_type == 'rsqrt'
  assert has_effect is is_read.get(name, True)


@pytest.mark.parametrize('name', resolved.STAGE_SETTINGS)
def test_refuse_settings_that_all_stages_set(name):
  value = {'freeze': ('head/',), 'decay_type': 'linear'}.get(name)
  value = digits(timescale=9)[name] if value is None else value
  value = 2.0 if name.endswith('_epochs') else value
  stages = ({'total_steps': 5, name: value}, {'total_steps': 4, name: value})
  with pytest.raises(errors.UserError, match=f'{name} would .* config.stages'):
    unused.refuse(digits(stages=stages), ('seed', name))
  # A stage without its own value reads that of the run.
  stages = (stages[0], {'total_epochs': 2.0})
  if name not in ('total_steps', 'total_epochs'):
    assert 'stages' not in unused.find(digits(stages=stages), name)


@pytest.mark.parametrize(
  'steps', sorted(set(resolved.EPOCHS) & set(resolved.STAGE_SETTINGS))
)
def test_refuse_durations_that_all_stages_set_in_the_other_unit(steps):
  epochs = resolved.EPOCHS[steps]
  for name, other, value in ((steps, epochs, 2.0), (epochs, steps, 3)):
    stages = ({other: value}, {other: value, 'total_steps': 4})
    reason = unused.find(digits(stages=stages), name)
    assert reason == 'each of config.stages sets its own', name


@pytest.mark.parametrize(
  'settings, given, reason',
  [
    (
      {'total_epochs': 2.0},
      ('total_steps', 'total_epochs'),
      'total_epochs overrides it',
    ),
    ({'total_epochs': None}, ('total_steps', 'total_epochs'), ''),
    (
      {'class_weights': 'balanced', 'pp': {'balance_classes': True}},
      ('class_weights',),
      'all classes equally frequent',
    ),
    (
      {'class_weights': '1,2', 'pp': {'balance_classes': True}},
      ('class_weights',),
      '',
    ),
    ({'pp': {'pad': 1}}, ('pp.crop_area',), 'take windows instead'),
    ({'pp': {'resize': 9}}, ('pp.crop_ratio',), 'take windows instead'),
    ({}, ('pp.pad_mode',), 'config.pp.pad is 0'),
    ({}, ('adapt_patches',), "config.pretrained is ''"),
    ({'weight_decay': 0.0}, ('weight_decay_on',), 'weight_decay is 0'),
    ({'eval_every': 0}, ('evaluators',), 'config.eval_every is 0'),
    ({'eval_every_epochs': 0.0}, ('best_metric',), 'config.eval_every is 0'),
    ({'eval_every': 0}, ('batch_eval',), 'config.eval_every is 0'),
    (
      {'distill': {'teacher': 'x', 'weight': 1.0}},
      ('label_smoothing',),
      'config.distill.weight is 1',
    ),
    ({'distill': {'teacher': 'x'}}, ('label_smoothing', 'focal_gamma'), ''),
    ({'dtype': 'float32'}, ('cpu_products',), 'dtype is not .bfloat16'),
    (
      {'model': {'transformer': {'block': {'activation': 'swiglu'}}}},
      ('exact_gelu',),
      'activation is another one',
    ),
    ({'trainer': 'sweep'}, ('base_lr',), 'rates of config.sweep.base_lr'),
    ({'trainer': 'evaluate'}, ('timescale', 'vocabulary'), ''),
    ({'pp': {'pad': 1}}, ('pp.pad_mode', 'base_lr', 'weight_decay_on'), ''),
  ],
)
def test_refuse_names_the_conflicting_setting(settings, given, reason):
  config = digits(**settings)
  if not reason:
    unused.refuse(config, given)
    return
  with pytest.raises(errors.UserError, match=f'{given[0]} would .*{reason}'):
    unused.refuse(config, given)


@pytest.mark.parametrize(
  ('task', 'settings', 'message'),
  [
    (
      'regression',
      {'pp': {'augmentation': 'medium1'}},
      "config.pp.augmentation is 'medium1', but the task is regression",
    ),
    (
      'regression',
      {'pp': {'mixup': 0.3}},
      'config.pp.mixup is 0.3, but the task is regression',
    ),
    (
      'multiclass',
      {'loss': 'sigmoid', 'pp': {'holdout': 'train[:10%]'}},
      "config.pp.holdout is 'train[:10%]', which would decide nothing",
    ),
    (
      'multiclass',
      {'trainer': 'contrastive', 'pp': {'holdout': 'train[:10%]'}},
      "config.pp.holdout is 'train[:10%]', which would decide nothing",
    ),
  ],
)
def test_settings_that_a_task_cannot_use_are_refused(task, settings, message):
  config = run_file('configs/digits.py').get_config().unlock()
  config.update(settings)
  config = resolved.with_defaults(config)
  with pytest.raises(errors.UserError) as e:
    labels.complete(config, task)
  assert str(e.value).startswith(message)


def test_rules_name_existing_settings(captions):
  config = tiny_lit(captions)
  for names, *_ in unused._RULES:
    for name in names:
      node = config
      for part in name.split('.'):
        assert part in node
        node = node[part]


def test_the_command_refuses_unused_settings_before_writing(tmp_path):
  _, *words = arguments('digits', tmp_path / 'run', '--config.timescale=5')
  result = call_command('train', *words)
  assert result.returncode == 1
  assert result.stderr.strip().splitlines()[-1] == (
    'vit-jax train: config.timescale would have no effect: config.decay_type is'
    " not 'rsqrt'. Leave it out, or change that."
  )
  assert not (tmp_path / 'run').exists()
