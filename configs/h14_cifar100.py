"""Fine-tunes ViT-H/14 (ImageNet-21k) on CIFAR-100 at 384 px.

python -m vit_jax.main --config=configs/h14_cifar100.py --workdir=/tmp/h14_cifar100

The settings are those of configs/vit.py (arXiv:2010.11929, Table 4).
"""

import ml_collections

from vit_jax.configs import vit


def get_config() -> ml_collections.ConfigDict:
  return vit.get_config('h14,cifar100')
