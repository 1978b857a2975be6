"""Pre-trains ViT-Mini/4, 2.7 million parameters, on Tiny ImageNet at 32 px.

python -m vit_jax.main --config=configs/pretrain_mini.py:/path/to/tiny_imagenet \
  --workdir=/tmp/mini

The folder looks like {train,val}/<class>/<image>; larger images are resized.
The result is checkpoints/ViT-Mini_4.npz: see checkpoints/README.md.
"""

import ml_collections

from vit_jax.configs import common
from vit_jax.configs import models


def get_config(dataset: str) -> ml_collections.ConfigDict:
  config = common.with_dataset(common.get_config(), dataset)
  config.model = models.get_model_config('ViT-Mini_4')
  config.pp.crop = 32
  config.pp.crop_area = (0.25, 1.0)

  config.dtype = 'bfloat16'
  config.batch = 128
  config.accum_steps = 1
  config.total_epochs = 8.0
  config.warmup_epochs = 0.5
  config.optimizer = 'adamw'
  config.optim_dtype = 'float32'
  config.base_lr = 0.001
  config.weight_decay = 0.05
  config.label_smoothing = 0.1
  config.progress_every = 50
  config.eval_every_epochs = 1.0
  config.checkpoint_every_epochs = 0.5
  return config
