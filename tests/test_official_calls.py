"""What users of the official code import and call works, or names what replaces it.

The calls are those of the tests and notebooks of google-research/vision_transformer.
"""

import importlib
import json

import cv2
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
from processes import call_command
import pytest

from vit_jax import checkpoint
from vit_jax import inference_time
from vit_jax import models
from vit_jax import train
from vit_jax.configs import augreg
from vit_jax.configs import common
from vit_jax.configs import inference_time as inference_time_config
from vit_jax.configs import mixer_base16_cifar10
from vit_jax.configs import models as model_configs
from vit_jax.configs import resolved
from vit_jax.configs import vit
from vit_jax.runtime import errors


def save_testing_checkpoint(path, num_classes=1):
  """Writes random weights of the official model for tests, for 16 px images."""
  model = models.VisionTransformer(
    num_classes=num_classes, **model_configs.get_testing_config()
  )
  images = jnp.ones([1, 16, 16, 3], jnp.float32)
  variables = model.init(jax.random.PRNGKey(0), images, train=False)
  checkpoint.save(variables['params'], path)
  return variables['params']


def test_load_pretrained_keeps_the_new_head_and_resizes_positions(tmp_path):
  path = f'{tmp_path}/testing.npz'
  saved = save_testing_checkpoint(path)
  config = model_configs.get_testing_config()
  model = models.VisionTransformer(num_classes=2, **config)
  variables = model.init(
    jax.random.PRNGKey(1),
    inputs=jnp.ones([1, 32, 32, 3], jnp.float32),
    train=False,
  )
  params = checkpoint.load_pretrained(
    pretrained_path=path,
    init_params=variables['params'],
    model_config=config,
  )
  assert jax.tree.structure(params) == jax.tree.structure(variables['params'])
  np.testing.assert_array_equal(
    params['head']['kernel'], variables['params']['head']['kernel']
  )
  np.testing.assert_array_equal(
    params['embedding']['kernel'], saved['embedding']['kernel']
  )


def official_run(tmp_path):
  """Returns the config of the official training test, for a folder."""
  for split in ('train', 'test'):
    for name in ('test1', 'test2'):
      folder = tmp_path / 'dataset' / split / name
      folder.mkdir(parents=True)
      for i in range(4):
        cv2.imwrite(f'{folder}/{i}.jpg', np.zeros([1, 1, 3], np.uint8))
  config = common.get_config()
  config.model = model_configs.get_testing_config()
  config.batch = 8
  config.accum_steps = 2
  config.batch_eval = 8
  config.total_steps = 1
  config.warmup_steps = 0
  config.dataset = str(tmp_path / 'dataset')
  config.pp = ml_collections.ConfigDict({'crop': 32})
  config.pretrained_dir = str(tmp_path)
  config.report = False
  return config


def test_train_and_evaluate_starts_from_the_model_of_pretrained_dir(tmp_path):
  config = official_run(tmp_path)
  config.base_lr = 0.0
  saved = save_testing_checkpoint(tmp_path / 'testing.npz')
  state = train.train_and_evaluate(config, str(tmp_path / 'run'))
  assert (tmp_path / 'run' / 'checkpoints' / '1').is_dir()
  kernel = state.params['embedding']['kernel']
  np.testing.assert_array_equal(kernel, saved['embedding']['kernel'])
  stored = json.loads((tmp_path / 'run' / 'config.json').read_text())
  assert (stored['pretrained'], stored['pp']['train']) == ('testing', 'train')
  assert config.pretrained is None  # The caller's settings stay.


def test_train_and_evaluate_refuses_a_model_that_pretrained_dir_lacks(tmp_path):
  config = official_run(tmp_path)
  with pytest.raises(errors.UserError, match='testing'):
    train.train_and_evaluate(config, str(tmp_path / 'run'))


def test_without_pretrained_dir_a_run_starts_from_scratch():
  config = common.get_config()
  config.model = model_configs.get_testing_config()
  assert resolved.complete(config).pretrained == ''
  config.pretrained_dir = '/weights'
  assert resolved.complete(config).pretrained == 'testing'
  config.pretrained = ''
  assert resolved.complete(config).pretrained == ''


def test_complete_refuses_unknown_settings_of_images():
  config = common.get_config()
  config.pp = ml_collections.ConfigDict({'corp': 32})
  with pytest.raises(errors.UserError, match="'corp'.*Did you mean 'crop'"):
    resolved.complete(config)


def test_inference_time_measures_weights_and_writes_tensorboard(tmp_path):
  config = inference_time_config.get_config()
  config.num_classes = 10
  config.image_size = 32
  config.batch = 8
  config.steps, config.initial_steps = 2, 1
  config.model_name = 'testing'
  config.pretrained_dir = str(tmp_path)
  with pytest.raises(errors.UserError, match='testing'):
    inference_time.inference_time(config, str(tmp_path))
  save_testing_checkpoint(tmp_path / 'testing.npz')
  inference_time.inference_time(config, str(tmp_path))
  assert list(tmp_path.glob('events.out.tfevents.*'))


def test_run_files_can_be_imported():
  config = vit.get_config('b16,cifar10')
  assert (config.base_lr, config.model.model_name) == (0.01, 'ViT-B_16')
  assert augreg.get_config('R_Ti_16').pp.resize == 448
  assert mixer_base16_cifar10.get_config().pp.crop == 224


@pytest.mark.parametrize(
  'use, message',
  [
    (
      lambda: importlib.import_module('vit_jax').utils,
      'optimizers.create_learning',
    ),
    (lambda: importlib.import_module('vit_jax').preprocess, 'data.text'),
    (lambda: checkpoint.get_augreg_df, 'vit_jax.configs.registry.entries'),
    (lambda: train.make_update_fn, 'vit_jax.training.update.train_step'),
    (lambda: models.get_model('LiT-L16Ti').get_tokenizer, 'data.text'),
  ],
)
def test_errors_name_what_replaces_an_official_name(use, message):
  with pytest.raises((AttributeError, ImportError), match=message):
    use()


def test_unknown_names_raise_attribute_error():
  assert not hasattr(checkpoint, 'nothing')
  assert not hasattr(importlib.import_module('vit_jax'), 'nothing')
  assert not hasattr(models.get_model('LiT-L16Ti'), 'nothing')


def test_the_command_line_names_what_replaces_an_official_setting(tmp_path):
  result = call_command(
    'train',
    '--config=configs/digits.py',
    f'--workdir={tmp_path}',
    '--config.model_or_filename=R_Ti_16',
  )
  assert result.returncode == 1
  assert result.stderr.splitlines()[-1].endswith(
    'config.model_or_filename of the official code is replaced by'
    ' config.pretrained.'
  )
