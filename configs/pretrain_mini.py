"""Pre-trains ViT-Mini/8, 4.1 million parameters, on Tiny ImageNet from scratch.

python -m vit_jax.main --config=configs/pretrain_mini.py:/path/to/tiny_imagenet,40 \
  --workdir=/tmp/mini_40
python -m vit_jax.main --config=configs/pretrain_mini.py:/path/to/tiny_imagenet,64 \
  --workdir=/tmp/mini_64 --config.pretrained=/tmp/mini_40/artifact_ema

The folder looks like {train,val}/<class>/<image>, images of 64 px. Most epochs are at
40 px, where a step costs 2.6 times less; the last ones are at 64 px, with a falling
learning rate. Position embeddings are fixed, so they suit every size.
The result is checkpoints/ViT-Mini_8.npz: see checkpoints/README.md.
"""

import ml_collections

from vit_jax.configs import common
from vit_jax.configs import models


def get_config(folder_size: str) -> ml_collections.ConfigDict:
  folder, _, size = folder_size.partition(',')
  if size not in ('40', '64'):
    raise ValueError(
      f'configs/pretrain_mini.py needs a folder, and 40 or 64, not {folder_size!r}.'
    )
  config = common.with_dataset(common.get_config(), folder)
  config.model = models.get_model_config('ViT-Mini_8')
  config.posemb = 'sincos2d'
  config.pp.crop = int(size)
  config.pp.crop_area = (0.25, 1.0)

  config.dtype = 'bfloat16'
  config.batch = 256
  config.accum_steps = 1
  config.total_epochs = 25.0
  config.warmup_epochs = 1.0
  config.optimizer = 'muon'
  config.optim_dtype = 'float32'
  config.base_lr = 0.002
  config.decay_type = 'constant'
  config.weight_decay = 0.1
  config.label_smoothing = 0.1
  config.ema_decay = 0.999
  if size == '64':
    config.total_epochs = 5.0
    config.warmup_epochs = 0.25
    config.base_lr = 0.0015
    config.decay_type = 'linear'
    config.ema_decay = 0.998
  config.progress_every = 50
  config.eval_every_epochs = 5.0
  config.checkpoint_every_epochs = 0.5
  return config
