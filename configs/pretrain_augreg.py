"""Pre-trains a ViT with the settings of "How to train your ViT?" (arXiv:2106.10270).

python -m vit_jax.main --config=configs/pretrain_augreg.py:s16,imagenet2012 \
  --workdir=gs://BUCKET/s16

Settings are those of its Sec. 3: 300 epochs, Adam, batches of 4,096, a warm-up of
10,000 steps, a learning rate of 0.001 with cosine decay, weight decay 0.1, gradients
clipped at norm 1, no dropout, a linear head, and evaluation on the central 224 of 256
px. The augmentation is the best one for the model on ImageNet (Fig. 4);
--config.pp.augmentation=light1 sets another. The paper also tries regularisation:
--config.model.transformer.dropout_rate=0.1 --config.stochastic_depth_rate=0.1.

For ImageNet-21k, in a folder: --config.loss=sigmoid --config.head_bias_init=-9.99, and
less augmentation: none for Ti/16 and S/32, light1 for S/16, light2 for B, medium2 for
L/16. Difference: weight decay acts on kernels alone.
Not run at full length: it takes days on an accelerator.
"""

import ml_collections

from vit_jax.configs import common
from vit_jax.configs import models
from vit_jax.configs import run_files

_AUGMENTATION = {'ViT-Ti_16': 'light1', 'ViT-S_32': 'light2'}


def get_config(model_dataset: str) -> ml_collections.ConfigDict:
  model, dataset = run_files.model_and_data(
    model_dataset, example='pretrain_augreg.py:s16,imagenet2012'
  )
  config = common.with_dataset(common.get_config(), dataset)
  config.model = models.get_model_config(model)
  if 'transformer' not in config.model:
    raise ValueError(
      f'configs/pretrain_augreg.py trains ViTs and hybrids, not {model!r}.'
    )
  config.model.transformer.dropout_rate = 0.0  # 0.1 in L/16 elsewhere.
  config.pp.crop = 224
  config.pp.resize_test = 256
  config.pp.augmentation = _AUGMENTATION.get(config.model.model_name, 'medium2')

  config.batch = 4096
  config.accum_steps = 1
  config.total_epochs = 300.0
  config.warmup_steps = 10_000
  config.optimizer = 'adamw'
  config.base_lr = 0.001
  config.weight_decay = 0.1
  config.eval_every = 5_000
  return config
