"""Fine-tunes ViT-B/16 on CIFAR-10 with the best of four learning rates.

vit-jax sweep --config=configs/sweep_cifar10.py --workdir=/tmp/sweep

arXiv:2010.11929 chooses among these four learning rates on 2 % of the training images
(Sec. B.1.1, Table 4) and reports 98.95 % (Table 5). configs/sweep.py has the other
data sets.
"""

import ml_collections

from vit_jax.configs import common


def get_config() -> ml_collections.ConfigDict:
  config = common.with_dataset(common.get_config(), 'cifar10')
  config = common.with_model(config, 'b16')
  config.pp.train = 'train'
  return common.with_sweep(
    config,
    base_lr=(0.001, 0.003, 0.01, 0.03),
    train='train[:98%]',
    holdout='train[98%:]',
    seeds=(0, 1, 2),
  )
