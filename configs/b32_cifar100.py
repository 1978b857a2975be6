"""Fine-tunes ViT-B/32 (ImageNet-21k) on CIFAR-100 at 384 px.

python -m vit_jax.main --config=configs/b32_cifar100.py --workdir=/tmp/b32_cifar100

The settings are those of configs/vit.py (arXiv:2010.11929, Table 4).
"""

import ml_collections

from vit_jax.configs import vit


def get_config() -> ml_collections.ConfigDict:
  return vit.get_config('b32,cifar100')
