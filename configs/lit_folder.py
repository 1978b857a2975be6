"""Teaches a text tower to fit a locked image tower, on images with captions.

python -m vit_jax.main --config=configs/lit_folder.py:lit_l16ti,/path/to/data \
  --workdir=/tmp/lit

The folder has {train,test}/captions.tsv with an image, a TAB and its caption on each
line. The image tower is a released ViT; --config.pretrained=LiT-L16Ti starts from both
towers of a released LiT.

The image tower is locked, the learning rate is 0.001 with cosine decay, gradients are
clipped at norm 1, and weight decay is 1e-4 per step (0.1 here, where it is multiplied
by the learning rate), like arXiv:2111.07991. Differences, to suit a folder: batches of
512 instead of 16,384, 10,000 steps, Adam instead of Adafactor, random crops of at least
half of the image.
"""

import ml_collections

from vit_jax.configs import common
from vit_jax.configs import models
from vit_jax.configs import run_files


def get_config(model_folder: str) -> ml_collections.ConfigDict:
  model, folder = run_files.model_and_data(
    model_folder,
    example='lit_folder.py:lit_l16ti,/path/to/data',
    data='a folder',
  )
  config = common.with_dataset(common.get_config(), folder)
  config.trainer = 'contrastive'
  config.model = models.get_model_config(model)
  if 'image' not in config.model:
    raise ValueError(
      f'configs/lit_folder.py trains a LiT such as lit_l16ti, not {model!r}.'
    )
  config.pretrained = config.model.image.model_name
  config.pp.crop = config.model.pp.size
  config.pp.crop_area = (0.5, 1.0)  # Captions describe the whole image.
  config.pp.flip = False  # Captions may mention left and right.

  config.accum_steps = 1
  config.optimizer = 'adamw'
  config.base_lr = 0.001
  config.weight_decay = 0.1
  config.total_steps = 10_000
  config.eval_every = 1_000
  return config
