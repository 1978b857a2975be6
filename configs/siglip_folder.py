"""Fine-tunes SigLIP or SigLIP 2 on images with captions, with the sigmoid loss.

python -m vit_jax.main \
  --config=configs/siglip_folder.py:/path/to/siglip,/path/to/data \
  --workdir=/tmp/siglip

The first path is a folder of transformers, such as hf://google/siglip2-base-patch16-256,
which has its tokeniser, or an .npz of big_vision, with --config.vocabulary=FILE: its
sentencepiece.model (SigLIP) or gemma_tokenizer.model (SigLIP 2). The second is a folder
with {train,test}/captions.tsv, with an image, a TAB and its caption on each line.

Both towers are trained; --config.lock_image_tower=True trains the text tower alone.
Temperature and bias start at those of the weights. As in big_vision, whole images are
resized to a square and scaled to [-1, 1]; there is no other augmentation. The optimizer
is AdamW with beta2 0.95 like arXiv:2303.15343, without weight decay, with a learning
rate and a batch for fine-tuning on one device: raise both together.
"""

import ml_collections

from vit_jax.configs import common
from vit_jax.configs import run_files


def get_config(model_folder: str) -> ml_collections.ConfigDict:
  model, folder = run_files.model_and_data(
    model_folder,
    example='siglip_folder.py:/path/to/siglip,/path/to/data',
    data='a folder',
  )
  config = common.with_dataset(common.get_config(), folder)
  config.trainer = 'contrastive'
  config.pretrained = model  # It decides the model and the size of images.
  config.loss = 'sigmoid'
  config.lock_image_tower = False
  config.pp.crop_area = (1.0, 1.0)
  config.pp.flip = False  # Captions may mention left and right.

  config.batch = 128
  config.batch_eval = 128
  config.accum_steps = 1
  config.optimizer = 'adamw'
  config.base_lr = 1e-5
  config.beta2 = 0.95
  config.total_steps = 2_000
  config.warmup_steps = 200
  config.eval_every = 500
  return config
