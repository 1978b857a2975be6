"""Fine-tunes the small checkpoint that comes with this repository.

python -m vit_jax.main --config=configs/finetune_mini.py --workdir=/tmp/digits

Trains on the digits of scikit-learn, or on another data set; a tenth of its labels is
enough: --config=configs/finetune_mini.py:cifar10 --config.pp.train='train[:10%]'.
--config.pretrained='' starts from random weights instead.
"""

import ml_collections

from vit_jax.configs import common
from vit_jax.configs import models


def get_config(dataset: str = 'digits') -> ml_collections.ConfigDict:
  config = common.with_dataset(common.get_config(), dataset)
  config.model = models.get_model_config('ViT-Mini_8')
  config.pretrained = 'ViT-Mini_8'
  config.pp.train = 'train'
  config.pp.crop = 64
  config.pp.crop_area = (0.5, 1.0)
  if dataset == 'digits':
    config.pp.crop = 40  # Digits of 8 px need no more.
    config.pp.crop_area = (0.8, 1.0)
    config.pp.flip = False  # Mirrored digits are not digits.
    config.adapt_channels = 'sum'  # They are grey.

  config.dtype = 'bfloat16'
  config.batch = 32
  config.accum_steps = 1
  config.total_epochs = 10.0
  config.warmup_epochs = 1.0
  config.optimizer = 'adamw'
  config.optim_dtype = 'float32'
  config.base_lr = 0.001
  config.weight_decay = 0.05
  config.progress_every = 10
  config.eval_every_epochs = 2.0
  config.checkpoint_every_epochs = 2.0
  return config
