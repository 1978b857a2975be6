"""Trains a ViT of four blocks on Imagenette from scratch.

python -m vit_jax.main --config=configs/imagenette_scratch.py:/path/to/imagenette \
  --workdir=/tmp/imagenette
"""

import ml_collections

from vit_jax.configs import common
from vit_jax.configs import models


def get_config(dataset: str) -> ml_collections.ConfigDict:
  config = common.with_dataset(common.get_config(), dataset)
  config.model = models.vit_config(
    'imagenette-scratch',
    hidden_size=256,
    num_layers=4,
    mlp_dim=1024,
    num_heads=4,
    patch_size=(16, 16),
  )
  config.pp.crop = 128
  config.pp.crop_area = (0.2, 1.0)
  config.pp.color_jitter = (0.4, 0.4, 0.4, 0.1)

  config.label_smoothing = 0.1
  config.dtype = 'bfloat16'
  config.batch = 128
  config.accum_steps = 1
  config.total_epochs = 60.0
  config.warmup_epochs = 4.0
  config.optimizer = 'adamw'
  config.optim_dtype = 'float32'
  config.base_lr = 0.001
  config.weight_decay = 0.05
  config.ema_decay = 0.999
  config.progress_every = 20
  config.eval_every_epochs = 5.0
  config.checkpoint_every_epochs = 2.0
  return config
