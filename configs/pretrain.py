"""Pre-trains a ViT or hybrid with the settings of the paper.

python -m vit_jax.main --config=configs/pretrain.py:b16,imagenet2012 \
  --workdir=gs://BUCKET/b16

Settings are those of arXiv:2010.11929, Sec. B.1, Table 3. ImageNet: 300 epochs, a
learning rate of 0.003 with cosine decay, weight decay 0.3, gradients clipped at norm
1. Any other data set, such as a folder with ImageNet-21k, gets the settings of
ImageNet-21k: 90 epochs (the table also has 30 for L), 0.001 with linear decay, weight
decay 0.03, no clipping. Both: Adam, batches of 4,096, a warm-up of 10,000 steps,
dropout 0.1, 224 px, and a head with a hidden layer as wide as the model (Sec. 3.1).

Differences: weight decay acts on kernels alone, linear decay ends at 1e-5, Adam's first
moment is bfloat16, and training leaves out the last 1 % of ImageNet.

--config.loss=sigmoid --config.head_bias_init=-9.99 trains with several labels per
image: the bias is -log(21,843), so that no class is likely at first.
Not run at full length: it takes days on an accelerator.
"""

import ml_collections

from vit_jax.configs import common
from vit_jax.configs import models
from vit_jax.configs import run_files


def get_config(model_dataset: str) -> ml_collections.ConfigDict:
  model, dataset = run_files.model_and_data(
    model_dataset, example='pretrain.py:b16,imagenet2012'
  )
  config = common.with_dataset(common.get_config(), dataset)
  config.model = models.get_model_config(model)
  if 'transformer' not in config.model:
    raise ValueError(
      f'configs/pretrain.py trains ViTs and hybrids, not {model!r}.'
    )
  config.model.transformer.dropout_rate = 0.1
  config.model.representation_size = config.model.hidden_size
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
    config.grad_norm_clip = 0.0  # The paper clips on ImageNet alone.
  return config
