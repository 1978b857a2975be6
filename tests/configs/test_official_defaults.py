"""Defaults equal those of the official configs/common.py and inference_time.py.

google-research/vision_transformer at c6de1e5.
"""

from vit_jax.configs import common
from vit_jax.configs import inference_time
from vit_jax.configs import models
from vit_jax.configs import vit

OFFICIAL_DEFAULTS = {
  'accum_steps': 8,
  'base_lr': 0.03,
  'batch': 512,
  'batch_eval': 512,
  'checkpoint_every': 1_000,
  'dataset': '',
  'decay_type': 'cosine',
  'eval_every': 100,
  'grad_norm_clip': 1.0,
  'model': None,
  'optim_dtype': 'bfloat16',
  'progress_every': 10,
  'tfds_data_dir': None,
  'total_steps': None,
  'trainer': 'train',
  'warmup_steps': 500,
}
OTHER_DEFAULTS = {  # Official, and ours.
  'pretrained_dir': ('.', None),  # None: checkpoints, where downloads go.
  'prefetch': (2, 4),  # Batches on the host; theirs are on the device.
}
GONE = ('tfds_manual_dir', 'shuffle_buffer', 'model_or_filename', 'model_type')
OFFICIAL_INFERENCE_TIME = {
  'batch': 0,
  'image_size': 0,
  'initial_steps': 10,
  'log_dir': '.',
  'model_name': 'ViT-B_32',
  'num_classes': 0,
  'steps': 30,
}


def test_defaults_equal_official():
  config = common.get_config()
  got = {name: config[name] for name in OFFICIAL_DEFAULTS}
  assert got == OFFICIAL_DEFAULTS
  for name, (official, ours) in OTHER_DEFAULTS.items():
    assert config[name] == ours != official
  assert not set(GONE) & set(config)


def test_vit_changes_few_official_defaults():
  config = vit.get_config('b16,cifar10')
  want = OFFICIAL_DEFAULTS | {
    'base_lr': 0.01,
    'dataset': 'cifar10',
    'model': models.get_model_config('b16'),
    'total_steps': 10_000,
  }
  assert {name: config[name] for name in want} == want
  assert config.pp.train == 'train[:98%]'


def test_inference_time_equals_official():
  config = inference_time.get_config()
  got = {name: config[name] for name in OFFICIAL_INFERENCE_TIME}
  assert got == OFFICIAL_INFERENCE_TIME


def test_augreg_configs_equal_official():
  names = (
    'testing-unpooled Ti_16 S_16 B_16 L_16 S_16-gap-norep B_16-gap-norep B_8'
    ' S_32 B_32 S_32-gap-norep B_32-gap-norep R_Ti_16 R26_B_32 R26_S_32 R50_L_32'
  )
  # The official table also has the LiT models, which the release does not have.
  assert set(models.AUGREG_CONFIGS) == set(names.split())
