"""Fine-tunes ViT-B/16 (ImageNet-21k) on CIFAR-10 at 384 px.

python -m vit_jax.main --config=configs/b16_cifar10.py --workdir=/tmp/b16_cifar10
Paper: 98.95 % top-1 (Table 5). Official code: 99.02 %.

The settings are those of configs/vit.py (arXiv:2010.11929, Table 4).
"""

import ml_collections

from vit_jax.configs import vit


def get_config() -> ml_collections.ConfigDict:
  return vit.get_config('b16,cifar10')
