"""Fine-tunes a released ViT like the paper, with a sweep of the learning rate.

vit-jax sweep --config=configs/sweep.py:b16,oxford_iiit_pet \
  --workdir=/tmp/sweep

Settings are those of arXiv:2010.11929, Sec. B.1.1 and Table 4: SGD with momentum 0.9,
batches of 512, gradients clipped at norm 1, cosine decay, no weight decay, 384 px. The
learning rate is chosen on held-out training images: 2 % of CIFAR, 1 % of ImageNet,
10 % of other data sets. The paper's results are in its Table 5. A folder of images gets
the settings of Pets. The paper gives no warm-up; the official configs use 100 of 500
steps, and 500 of longer runs.
"""

import ml_collections

from vit_jax.configs import common
from vit_jax.configs import run_files

_RATES = (0.001, 0.003, 0.01, 0.03)
_SWEEPS = {  # Rates, and where the held-out training images begin.
  'cifar10': (_RATES, '98%'),
  'cifar100': (_RATES, '98%'),
  'imagenet2012': ((0.003, 0.01, 0.03, 0.06), '99%'),
}


def get_config(model_dataset: str) -> ml_collections.ConfigDict:
  model, dataset = run_files.model_and_data(
    model_dataset, example='sweep.py:b16,cifar10'
  )
  config = common.get_config()
  config.update({'total_steps': 500, 'warmup_steps': 100, 'pp': {'crop': 384}})
  config = common.with_dataset(config, dataset)
  config = common.with_model(config, model)
  config.pp.train = 'train'
  rates, part = _SWEEPS.get(dataset, (_RATES, '90%'))
  return common.with_sweep(
    config,
    rates,
    train=f'train[:{part}]',
    holdout=f'train[{part}:]',
    seeds=(0, 1, 2),
  )
