"""Trains a small ViT on CIFAR-10 from scratch, also on a CPU.

python -m vit_jax.main --config=configs/cifar10_scratch.py --workdir=/tmp/c10

CIFAR-10 is downloaded. A folder {train,test}/<class>/<image> can replace it:
--config=configs/cifar10_scratch.py:/path/to/cifar10. Measured: 86.4 % of the test
images, see RESULTS.md.

The settings suit two hours of two CPU cores. A narrow model trains for more epochs, and
half of the patches are left out in training, which makes them cheaper still. CutMix and
mixup keep the model from learning its images by heart. What else was tried is in
RESULTS.md, "Choosing the recipes".
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
    mlp_dim=512,
    num_heads=4,
    patch_size=(4, 4),
    classifier='gap',
  )
  config.pp.train = 'train'
  config.pp.crop = 32
  config.pp.resize = 32
  config.pp.pad = 4
  config.pp.cutmix = 1.0
  config.pp.mixup = 0.2
  config.patch_dropout = 0.5
  config.posemb = 'sincos2d'

  config.label_smoothing = 0.1
  config.dtype = 'bfloat16'
  config.batch = 128
  config.accum_steps = 1
  config.total_epochs = 100.0
  config.warmup_epochs = 2.0
  config.optimizer = 'muon'
  config.optim_dtype = 'float32'
  config.base_lr = 0.002
  config.weight_decay = 0.05
  config.ema_decay = 0.999
  config.progress_every = 50
  config.eval_every_epochs = 20.0
  config.checkpoint_every_epochs = 1.0
  return config
