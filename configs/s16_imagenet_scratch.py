"""Trains ViT-S/16 on ImageNet from scratch, the simple way (arXiv:2205.01580).

python -m vit_jax.main --config=configs/s16_imagenet_scratch.py \
  --workdir=gs://BUCKET/s16

Settings of "Better plain ViT baselines for ImageNet-1k" and big_vision's
vit_s16_i1k.py: Adam, batches of 1,024, a learning rate of 0.001, weight decay 1e-4 per
step (0.1 here, where it is multiplied by the learning rate), mean pooling, a head with
a hidden layer, fixed sine-cosine positions, RandAugment (2, 10), mixup 0.2, neither
dropout nor label smoothing. 76.5 % after 90 epochs (its Table 1);
--config.total_epochs=300 for more. A folder can replace TFDS:
configs/s16_imagenet_scratch.py:/path/to/imagenet
Not run at full length: it takes hours on an accelerator.
"""

import ml_collections

from vit_jax.configs import common
from vit_jax.configs import models


def get_config(dataset: str = 'imagenet2012') -> ml_collections.ConfigDict:
  config = common.with_dataset(common.get_config(), dataset)
  config.model = models.get_model_config('ViT-S_16')
  config.model.classifier = 'gap'
  config.model.representation_size = 384
  config.posemb = 'sincos2d'
  config.pp.crop = 224
  config.pp.resize_test = 256
  config.pp.augmentation = 'light2'

  config.batch = 1024
  config.accum_steps = 1
  config.total_epochs = 90.0
  config.warmup_steps = 10_000
  config.optimizer = 'adamw'
  config.base_lr = 0.001
  config.weight_decay = 0.1
  config.eval_every = 2_500
  return config
