"""Fine-tunes ViT-L/16 (ImageNet-21k) on CIFAR-10 at 384 px.

python -m vit_jax.main --config=configs/l16_cifar10.py --workdir=/tmp/l16_cifar10

The settings are those of configs/vit.py (arXiv:2010.11929, Table 4).
"""

import ml_collections

from vit_jax.configs import vit


def get_config() -> ml_collections.ConfigDict:
  return vit.get_config('l16,cifar10')
