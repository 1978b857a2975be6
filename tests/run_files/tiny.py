"""A run of seconds: a tiny ViT on a folder, with everything turned on."""

import ml_collections

from vit_jax.configs import common
from vit_jax.configs import models


def get_config(folder: str) -> ml_collections.ConfigDict:
  config = common.with_dataset(common.get_config(), folder)
  config.model = models.vit_config(
    'tiny',
    hidden_size=16,
    num_layers=2,
    mlp_dim=32,
    num_heads=2,
    patch_size=(8, 8),
    dropout_rate=0.1,
  )
  config.report = False
  config.pp.crop = (16, 24)
  config.stochastic_depth_rate = 0.1
  config.batch = 8
  config.accum_steps = 2
  config.batch_eval = 8
  config.total_steps = 40
  config.warmup_steps = 4
  config.optimizer = 'adamw'
  config.base_lr = 0.003
  config.progress_every = 5
  config.eval_every = 20
  config.checkpoint_every = 10
  return config
