"""Trains ViTs on Tiny ImageNet from scratch.

python -m vit_jax.main --config=configs/tiny_imagenet.py:ours,/path/to/tiny_imagenet \
  --workdir=/tmp/tiny_imagenet

The folder looks like {train,val}/<class>/<image>, images of 64 px. Variants, trained
for 150 epochs on random 224 px windows of images resized to 256:

  b16      ViT-B/16
  wide     patch 16, 8 blocks, width 512, weight decay 0.03, dropout 0.1
  decay    wide with weight decay 0.001
  narrow   patch 8, 6 blocks, width 384, no weight decay, dropout 0.05
  ours     patch 8 on 64 px, 9 blocks, width 384, with stronger augmentation

Published, on the validation images: less than 6 % for wide, 25 % for decay, 38 % for
narrow. Not run at full length: RESULTS.md has shorter runs.
"""

import ml_collections

from vit_jax.configs import common
from vit_jax.configs import models

_VARIANTS = {  # Patch, blocks, width, mlp, heads; weight decay, dropout.
  'b16': ((16, 12, 768, 3072, 12), 0.03, 0.1),
  'wide': ((16, 8, 512, 2048, 8), 0.03, 0.1),
  'decay': ((16, 8, 512, 2048, 8), 0.001, 0.1),
  'narrow': ((8, 6, 384, 1536, 6), 0.0, 0.05),
  'ours': ((8, 9, 384, 1536, 6), 0.05, 0.0),
}


def get_config(variant_folder: str) -> ml_collections.ConfigDict:
  variant, _, folder = variant_folder.partition(',')
  if variant not in _VARIANTS or not folder:
    raise ValueError(
      f'configs/tiny_imagenet.py needs one of {", ".join(_VARIANTS)} and a folder'
      f' such as tiny_imagenet.py:ours,/path/to/images, not {variant_folder!r}.'
    )
  config = common.with_dataset(common.get_config(), folder)
  (patch, depth, width, mlp, heads), decay, dropout = _VARIANTS[variant]
  config.model = models.vit_config(
    f'tiny-imagenet-{variant}',
    hidden_size=width,
    num_layers=depth,
    mlp_dim=mlp,
    num_heads=heads,
    patch_size=(patch, patch),
    dropout_rate=dropout,
  )
  config.pp.crop = 224
  config.pp.resize = 256

  config.batch = 256
  config.accum_steps = 1
  config.total_epochs = 150.0
  config.warmup_epochs = 5.0
  config.optimizer = 'adamw'
  config.base_lr = 0.001
  config.weight_decay = decay
  config.eval_every_epochs = 5.0
  if variant == 'ours':
    _strengthen(config)
  return config


def _strengthen(config: ml_collections.ConfigDict) -> None:
  config.model.classifier = 'gap'
  config.stochastic_depth_rate = 0.1
  config.ema_decay = 0.9998
  config.label_smoothing = 0.1
  config.pp.crop = 64
  config.pp.resize = None
  config.pp.crop_area = (0.2, 1.0)
  config.pp.augmentation = 'medium2'
  config.pp.cutmix = 1.0
  config.pp.random_erasing = 0.25
