"""A run of seconds: tiny towers on a folder of captions."""

import ml_collections

from vit_jax.configs import common
from vit_jax.configs import models


def get_config(folder: str) -> ml_collections.ConfigDict:
  config = common.with_dataset(common.get_config(), folder)
  config.trainer = 'contrastive'
  config.report = False
  config.model = ml_collections.ConfigDict(
    {
      'model_name': 'tiny',
      'image': models.vit_config(
        'tiny',
        hidden_size=16,
        num_layers=1,
        mlp_dim=32,
        num_heads=2,
        patch_size=(8, 8),
        dropout_rate=0.1,
        classifier='gap',
      ),
      'text_model': 'text_transformer',
      'text': {
        'width': 16,
        'num_layers': 1,
        'mlp_dim': 32,
        'num_heads': 2,
        'dropout_rate': 0.1,
        'vocab_size': 40,
      },
      'out_dim': (12, 12),
      'pp': {'tokenizer_name': 'bert', 'size': 16, 'max_len': 6},
    }
  )
  config.pp.crop = 16
  config.pp.crop_area = (0.5, 1.0)
  config.batch = 16
  config.batch_eval = 8
  config.accum_steps = 1
  config.total_steps = 60
  config.warmup_steps = 5
  config.optimizer = 'adamw'
  config.base_lr = 0.01
  config.weight_decay = 0.001
  config.progress_every = 5
  config.eval_every = 20
  config.checkpoint_every = 20
  return config
