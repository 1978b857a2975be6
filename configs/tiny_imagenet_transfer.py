"""Fine-tunes ViT-B/16 (ImageNet-21k) on Tiny ImageNet: the head first, then all.

python -m vit_jax.main --workdir=/tmp/transfer \
  --config=configs/tiny_imagenet_transfer.py:/path/to/tiny_imagenet

The head alone for 5 epochs, then everything for 20, at 224 px. Published: 89.87 % of
the test images. Not run here, without the released weights. Other weights follow a
comma: tiny_imagenet_transfer.py:FOLDER,ViT-Mini_8 with --config.pp.crop=64.
"""

import ml_collections

from vit_jax.configs import common


def get_config(folder_model: str) -> ml_collections.ConfigDict:
  folder, _, model = folder_model.partition(',')
  config = common.with_dataset(common.get_config(), folder)
  config = common.with_model(config, model or 'b16').unlock()
  config.pp.crop = 224
  config.pp.crop_area = (0.25, 1.0)

  config.batch = 256
  config.stages = (
    {
      'total_epochs': 5.0,
      'warmup_epochs': 0.25,
      'base_lr': 0.03,
      'freeze': (r'(?!head/)',),
    },
    {'total_epochs': 20.0, 'warmup_epochs': 1.0, 'base_lr': 0.01},
  )
  config.eval_every_epochs = 1.0
  return config.lock()
