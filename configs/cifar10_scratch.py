"""Trains a small ViT on CIFAR-10 from scratch, in minutes even on a CPU.

python -m vit_jax.main --config=configs/cifar10_scratch.py --workdir=/tmp/c10

CIFAR-10 is downloaded; a folder {train,test}/<class>/<image> is as good:
--config=configs/cifar10_scratch.py:/path/to/cifar10
"""

import ml_collections

from vit_jax.configs import common
from vit_jax.configs import models


def get_config(dataset: str = 'cifar10') -> ml_collections.ConfigDict:
  config = common.with_dataset(common.get_config(), dataset)
  config.model = models.vit_config(
    'cifar10-scratch',
    hidden_size=128,
    num_layers=6,
    mlp_dim=256,
    num_heads=4,
    patch_size=(4, 4),
  )
  config.pp.train = 'train'
  config.pp.crop = 32
  config.pp.crop_area = (0.5, 1.0)

  config.batch = 128
  config.accum_steps = 1
  config.total_steps = 1170  # Three epochs.
  config.warmup_steps = 100
  config.optimizer = 'adamw'
  config.optim_dtype = 'float32'
  config.base_lr = 0.001
  config.weight_decay = 0.05
  config.progress_every = 50
  config.eval_every = 390
  config.checkpoint_every = 195
  return config
