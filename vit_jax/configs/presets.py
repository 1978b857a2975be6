"""Changes a config for a data set, for given weights, or for a sweep."""

from collections.abc import Sequence
import os

import ml_collections

from vit_jax.configs import models
from vit_jax.configs import registry

_CIFAR = {
  'total_steps': 10_000,
  'warmup_steps': 500,
  'pp': {'train': 'train[:98%]', 'test': 'test', 'crop': 384},
}
_FEW_IMAGES = {
  'total_steps': 500,
  'warmup_steps': 100,
  'pp': {'train': 'train', 'test': 'test', 'crop': 384},
}

# Splits, input size and steps of the official code. The last parts of the
# training sets of CIFAR and ImageNet are left out, for choosing settings.
DATASET_PRESETS = {
  'cifar10': _CIFAR,
  'cifar100': _CIFAR,
  'imagenet2012': {
    'total_steps': 20_000,
    'warmup_steps': 500,
    'pp': {'train': 'train[:99%]', 'test': 'validation', 'crop': 384},
  },
  'oxford_flowers102': _FEW_IMAGES,
  'oxford_iiit_pet': _FEW_IMAGES,
}


def with_dataset(
  config: ml_collections.ConfigDict, dataset: str
) -> ml_collections.ConfigDict:
  """Returns a copy for a data set, with its preset where there is one."""
  config = ml_collections.ConfigDict(config)
  config.dataset = dataset
  config.update(DATASET_PRESETS.get(dataset, {}))
  return config.lock()


def with_model(
  config: ml_collections.ConfigDict, model: str
) -> ml_collections.ConfigDict:
  """Returns a copy that fine-tunes given weights.

  Args:
    config: settings.
    model: a released model, `b16` or `ViT-B_16`; a name that `vit-jax models`
      prints; or a file or folder of weights, which tell their model.

  Raises:
    ValueError: if it is none of them.
  """
  config = ml_collections.ConfigDict(config)
  entry = registry.entries().get(model)
  if entry and entry.is_family:  # The weights decide the model.
    config.pretrained = model
    return config.lock()
  try:
    config.model = models.get_model_config(entry.model if entry else model)
    config.pretrained = model if entry else config.model.model_name
  except ValueError:
    if not os.path.exists(model):
      raise
    config.pretrained = model
  if entry and entry.is_augreg:
    config.model.transformer.dropout_rate = models.AUGREG_DROPOUT
  return config.lock()


def with_sweep(
  config: ml_collections.ConfigDict,
  base_lr: Sequence[float],
  *,
  train: str = '',
  holdout: str = '',
  seeds: Sequence[int] = (0,),
) -> ml_collections.ConfigDict:
  """Returns a copy for `vit-jax sweep`.

  Args:
    config: settings of the final runs, on all of `pp.train`.
    base_lr: rates to try.
    train: split that the trials train on; empty: all but the last tenth.
    holdout: split on which the best rate is chosen; empty: the last tenth.
    seeds: seeds of the final runs.
  """
  config = ml_collections.ConfigDict(config).unlock()
  config.sweep = ml_collections.ConfigDict({'trainer': config.trainer})
  config.trainer = 'sweep'
  config.sweep.base_lr, config.sweep.seeds = tuple(base_lr), tuple(seeds)
  config.sweep.train, config.sweep.holdout = train, holdout
  return config.lock()
