"""Fine-tunes ViT-B/32 (ImageNet-21k) on CIFAR-10 at 384 px.

python -m vit_jax.main --config=configs/b32_cifar10.py --workdir=/tmp/b32_cifar10
"""

import ml_collections

from vit_jax.configs import common


def get_config() -> ml_collections.ConfigDict:
  config = common.with_dataset(common.get_config(), 'cifar10')
  config = common.with_model(config, 'b32')
  return config
