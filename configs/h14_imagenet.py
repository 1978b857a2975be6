"""Fine-tunes ViT-H/14 (ImageNet-21k) on ImageNet at 384 px.

python -m vit_jax.main --config=configs/h14_imagenet.py --workdir=/tmp/h14_imagenet
"""

import ml_collections

from vit_jax.configs import common


def get_config() -> ml_collections.ConfigDict:
  config = common.with_dataset(common.get_config(), 'imagenet2012')
  config = common.with_model(config, 'h14')
  return config
