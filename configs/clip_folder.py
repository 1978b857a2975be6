"""Trains a pretrained CLIP or SigLIP on images with captions.

python -m vit_jax.main --workdir=/tmp/clip \
  --config=configs/clip_folder.py:hf://openai/clip-vit-base-patch32,/path/to/data

The weights have both towers and their vocabulary, in any format that `vit-jax convert`
reads. The folder has {train,test}/captions.tsv with an image, a TAB and its caption on
each line. For a SigLIP, add --config.loss=sigmoid. --config.lock_image_tower=True trains the
text tower alone.

Both towers start from good weights, so the learning rate is small: 1e-5 with cosine
decay, 100 steps of warm-up and weight decay 0.1.
"""

import ml_collections

from vit_jax.configs import common
from vit_jax.configs import run_files


def get_config(model_folder: str) -> ml_collections.ConfigDict:
  model, folder = run_files.model_and_data(
    model_folder,
    example='clip_folder.py:hf://openai/clip-vit-base-patch32,/path/to/data',
    data='a folder',
  )
  config = common.with_dataset(common.get_config(), folder)
  config.trainer = 'contrastive'
  config.pretrained = model  # It decides the model and the size of images.
  config.lock_image_tower = False
  config.pp.crop_area = (0.5, 1.0)  # Captions describe the whole image.
  config.pp.flip = False  # Captions may mention left and right.

  config.accum_steps = 1
  config.batch = 256
  config.optimizer = 'adamw'
  config.base_lr = 1e-5
  config.weight_decay = 0.1
  config.warmup_steps = 100
  config.total_steps = 1_000
  config.eval_every = 200
  return config
