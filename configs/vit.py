"""Fine-tunes any released ViT on any data set; the official command line.

python -m vit_jax.main --config=configs/vit.py:b16,cifar10 --workdir=/tmp/b16
"""

import ml_collections

from vit_jax.configs import common

_BASE_LR = {  # The best of the official sweeps, where they are known.
  ('b16', 'cifar10'): 0.01,
}


def get_config(model_dataset: str) -> ml_collections.ConfigDict:
  if ',' not in model_dataset:
    raise ValueError(
      f'configs/vit.py needs a model and a data set, vit.py:b16,cifar10 say,'
      f' not {model_dataset!r}.'
    )
  model, dataset = model_dataset.split(',', 1)
  config = common.with_dataset(common.get_config(), dataset)
  config = common.with_model(config, model)
  config.base_lr = _BASE_LR.get((model, dataset), config.base_lr)
  return config
