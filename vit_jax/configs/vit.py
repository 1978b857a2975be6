"""Fine-tunes any released ViT; the official command line.

python -m vit_jax.main --config=configs/vit.py:b16,cifar10 --workdir=/tmp/b16

Steps, batches, clipping and decay are those of arXiv:2010.11929, Table 4. The official
code and this file leave out the images of CIFAR and ImageNet that the paper tunes the
learning rate on (Sec. B.1.1), and use one learning rate; configs/sweep.py follows the
paper. A data set other than CIFAR, ImageNet, Flowers and Pets also needs
--config.total_steps; configs/folder.py suits a folder of images.
"""

import ml_collections

from vit_jax.configs import common
from vit_jax.configs import run_files

_BASE_LR = {  # Best rates of the official sweeps, where published.
  ('b16', 'cifar10'): 0.01,
}


def get_config(model_dataset: str) -> ml_collections.ConfigDict:
  """Returns the config for MODEL,DATASET."""
  model, dataset = run_files.model_and_data(
    model_dataset, example='vit.py:b16,cifar10'
  )
  config = common.with_dataset(common.get_config(), dataset)
  config = common.with_model(config, model)
  config.base_lr = _BASE_LR.get((model, dataset), config.base_lr)
  return config
