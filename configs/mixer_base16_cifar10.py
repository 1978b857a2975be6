"""Fine-tunes Mixer-B/16 (ImageNet-21k) on CIFAR-10 at 224 px.

python -m vit_jax.main --config=configs/mixer_base16_cifar10.py --workdir=/tmp/mixer
Official code: 96.82 % top-1.
"""

import ml_collections

from vit_jax.configs import common


def get_config() -> ml_collections.ConfigDict:
  config = common.with_dataset(common.get_config(), 'cifar10')
  config = common.with_model(config, 'mixer_b16')
  config.pp.crop = 224  # The only size whose grid its weights allow.
  return config
