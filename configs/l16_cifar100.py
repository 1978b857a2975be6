"""Fine-tunes ViT-L/16 (ImageNet-21k) on CIFAR-100 at 384 px.

python -m vit_jax.main --config=configs/l16_cifar100.py --workdir=/tmp/l16_cifar100
"""

import ml_collections

from vit_jax.configs import common


def get_config() -> ml_collections.ConfigDict:
  config = common.with_dataset(common.get_config(), 'cifar100')
  config = common.with_model(config, 'l16')
  return config
