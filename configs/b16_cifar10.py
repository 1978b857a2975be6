"""Fine-tunes ViT-B/16 (ImageNet-21k) on CIFAR-10 at 384 px.

python -m vit_jax.main --config=configs/b16_cifar10.py --workdir=/tmp/b16_cifar10
Paper: 98.95 % top-1 (Table 5). Official code: 99.02 %.
"""

import ml_collections

from vit_jax.configs import common


def get_config() -> ml_collections.ConfigDict:
  config = common.with_dataset(common.get_config(), 'cifar10')
  config = common.with_model(config, 'b16')
  config.base_lr = 0.01
  return config
