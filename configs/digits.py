"""Trains a small ViT on handwritten digits that come with scikit-learn.

python -m vit_jax.main --config=configs/digits.py --workdir=/tmp/digits
"""

import ml_collections

from vit_jax.configs import common
from vit_jax.configs import models


def get_config() -> ml_collections.ConfigDict:
  config = common.with_dataset(common.get_config(), 'digits')
  config.model = models.vit_config(
    'digits',
    hidden_size=64,
    num_layers=4,
    mlp_dim=128,
    num_heads=4,
    patch_size=(2, 2),
  )
  config.pp.crop = 8
  config.pp.crop_area = (0.7, 1.0)
  config.pp.flip = False  # Mirrored digits are not digits.

  config.batch = 128
  config.accum_steps = 1
  config.total_steps = 2000
  config.warmup_steps = 100
  config.optimizer = 'adamw'
  config.optim_dtype = 'float32'
  config.base_lr = 0.002
  config.weight_decay = 1.0
  config.progress_every = 50
  config.eval_every = 500
  config.checkpoint_every = 500
  return config
