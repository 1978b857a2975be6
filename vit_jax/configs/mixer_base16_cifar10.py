"""Fine-tunes Mixer-B/16 (ImageNet-21k) on CIFAR-10 at 224 px.

python -m vit_jax.main --config=configs/mixer_base16_cifar10.py --workdir=/tmp/mixer

Settings are those of the official mixer_base16_cifar10.py, except that the fields of
`config.model` define the family, not `config.model_type`. They equal those of
arXiv:2105.01601, Sec. 3: SGD, batches of 512, clipping at norm 1, a cosine schedule
and no weight decay.
"""

import ml_collections

from vit_jax.configs import common


def get_config() -> ml_collections.ConfigDict:
  """Returns the config."""
  config = common.with_dataset(common.get_config(), 'cifar10')
  config = common.with_model(config, 'mixer_b16')
  config.pp.crop = 224  # The weights fix the number of patches.
  return config
