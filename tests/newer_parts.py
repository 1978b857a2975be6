"""Tiny ViTs which together have every part of the papers after 2021.

As a program, trains them over eight devices, for test_newer_parts.py.
"""

import pathlib
import sys

import ml_collections
from runs import tiny

_SIZES = {
  'model_name': 'tiny',
  'patches': {'size': (8, 8)},
  'hidden_size': 16,
  'representation_size': None,
}

_ENCODER = {
  'mlp_dim': 24,
  'num_heads': 2,
  'num_layers': 2,
  'dropout_rate': 0.1,
  'attention_dropout_rate': 0.0,
}


def _vit(encoder, **fields):
  return _SIZES | fields | {'transformer': _ENCODER | encoder}


MODELS = {
  'dino': _vit(
    {
      'add_position_embedding': False,
      'block': {'activation': 'swiglu', 'layer_scale': 0.5, 'biases': 'qv'},
    },
    classifier='token_mean',
    num_registers=2,
    rotary_base=100.0,
  ),
  'deit': _vit(
    {'block': {'activation': 'quick_gelu', 'layer_scale': 0.1}},
    classifier='token',
    distillation='head',
    posemb_resize='bicubic',
  ),
  'map': _vit(
    {'first_norm': True},
    classifier='map',
    num_registers=1,
    num_positioned=0,
    projection=12,
    patches={'size': (8, 8), 'bias': False},
  ),
}


def config(folder, name, steps=3, **settings):
  """Returns a config that trains without a schedule."""
  config = tiny(folder).unlock()
  config.model = ml_collections.ConfigDict(MODELS[name])
  config.decay_type = 'constant'
  config.warmup_steps = config.eval_every = 0
  config.total_steps = steps
  config.checkpoint_every = config.progress_every = 1
  config.accum_steps = 1
  config.optimizer, config.base_lr = 'sgd', 0.3
  for key, value in settings.items():
    config[key] = value
  return config


def main(folder, root):
  from vit_jax import train

  for name in MODELS:
    run = config(folder, name, checkpoint_every=0)
    run.mesh.update(data=2, fsdp=2, model=2)
    train.train_and_evaluate(run, str(pathlib.Path(root) / name))


if __name__ == '__main__':
  main(*sys.argv[1:])
