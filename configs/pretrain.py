"""Pre-trains a ViT or hybrid as the paper does.

python -m vit_jax.main --config=configs/pretrain.py:b16,imagenet2012 \
  --workdir=gs://BUCKET/b16

On ImageNet: 300 epochs, a rate of 0.003 that decays by a cosine, weight decay 0.3.
Any other data set, a folder with ImageNet-21k say, has the settings of ImageNet-21k:
90 epochs (30 of L/16 do, the paper says), 0.001 and linear, 0.03. Both: Adam, batches
of 4,096, a warm-up of 10,000 steps, dropout 0.1, 224 px (Sec. B.1, Table 3).

--config.loss=sigmoid --config.head_bias_init=-9.99 trains for many labels at once:
the bias is -log(21,843), so that no class is likely at first.
Untried at full length here: it takes an accelerator for days.
"""

import ml_collections

from vit_jax.configs import common
from vit_jax.configs import models


def get_config(model_dataset: str) -> ml_collections.ConfigDict:
  if ',' not in model_dataset:
    raise ValueError(
      f'configs/pretrain.py needs a model and a data set,'
      f' pretrain.py:b16,imagenet2012 say, not {model_dataset!r}.'
    )
  model, dataset = model_dataset.split(',', 1)
  config = common.with_dataset(common.get_config(), dataset)
  config.model = models.get_model_config(model)
  config.model.transformer.dropout_rate = 0.1
  config.pp.crop = 224

  config.batch = 4096
  config.accum_steps = 1
  config.optimizer = 'adamw'
  config.warmup_steps = 10_000
  config.eval_every = 5_000
  if dataset == 'imagenet2012':
    config.total_epochs = 300.0
    config.base_lr = 0.003
    config.decay_type = 'cosine'
    config.weight_decay = 0.3
  else:
    config.total_epochs = 90.0
    config.base_lr = 0.001
    config.decay_type = 'linear'
    config.weight_decay = 0.03
    config.grad_norm_clip = 0.0  # Of ImageNet alone.
  return config
