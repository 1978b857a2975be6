"""Fine-tunes a ViT or hybrid of the AugReg release (arXiv:2106.10270).

python -m vit_jax.main --config=configs/augreg.py:R_Ti_16 --workdir=/tmp/augreg \
  --config.dataset=oxford_iiit_pet --config.pp.train='train[:90%]' \
  --config.base_lr=0.01

A model's name selects the weights with the best accuracy in pre-training on
ImageNet-21k, according to the release's index.csv; a whole file name without `.npz`
(R_Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0) selects that file.
Settings are those of the official augreg.py: 500 steps, no dropout, and random 384
px crops of images resized to 448 px, which the official code sets but never reads.
"""

import ml_collections

from vit_jax.configs import common
from vit_jax.configs import models


def get_config(model_or_filename: str) -> ml_collections.ConfigDict:
  """Returns the config for a model or a file of the release."""
  model = model_or_filename.split('-')[0]
  if model not in models.AUGREG_CONFIGS:
    raise ValueError(
      f'There is no AugReg model {model!r}. Available:'
      f' {", ".join(sorted(models.AUGREG_CONFIGS))}.'
    )
  # The data set must be given on the command line.
  config = ml_collections.ConfigDict(common.get_config())
  name = models.AUGREG_CONFIGS[model].model_name
  config.model = models.get_model_config(name)
  config.model.transformer.dropout_rate = models.AUGREG_DROPOUT
  config.pretrained = model_or_filename
  config.pretrained_dir = 'gs://vit_models/augreg'
  config.total_steps = 500
  config.warmup_steps = 100
  config.pp.resize = 448
  config.pp.crop = 384
  return config.lock()
