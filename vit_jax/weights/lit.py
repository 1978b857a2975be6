"""Weights and vocabularies of LiT models: found, downloaded, put together."""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from vit_jax import checkpoint
from vit_jax.configs import models as model_configs
from vit_jax.configs import registry
from vit_jax.configs import spec
from vit_jax.runtime import download
from vit_jax.runtime import errors
from vit_jax.runtime import storage
from vit_jax.weights import record as weights_lib
from vit_jax.weights import released


def full_name(model: str) -> str | None:
  """Returns `LiT-B16B` for itself or `lit_b16b`; None if there is no such."""
  for name, config in model_configs.MODEL_CONFIGS.items():
    if spec.has_texts(config) and model in (
      name,
      model_configs.short_name(name),
    ):
      return name
  return None


def find_vocabulary(
  model: model_configs.ModelConfig, path: str, directory: str
) -> str:
  """Returns the path of the tokeniser's file of a model.

  Args:
    model: config of a LiT model.
    path: what the user chose; empty for that of the released model.
    directory: where released files are, or are downloaded to.

  Raises:
    errors.UserError: if there is none.
  """
  if path:
    return path
  name = full_name(model['model_name'] or '')
  if name is None:
    raise errors.UserError(
      f'{model["model_name"]} is no released model, whose vocabulary is known.'
      f' Give its file: config.vocabulary=FILE.'
    )
  source = registry.entries()[name].vocabulary
  if download.is_url(directory):
    directory, source = 'checkpoints', f'{directory}/{source.split("/")[-1]}'
  return str(
    released.download_first(
      [source], storage.local_path(directory) / source.split('/')[-1]
    )
  )


def initial_params(
  model: nn.Module,
  weights: weights_lib.Weights,
  shapes: dict[str, Any],
  *,
  path: str,
  grid: tuple[int, int],
  seed: int = 0,
) -> dict[str, Any]:
  """Returns parameters to start from.

  Args:
    model: the LiT model.
    weights: of a ViT, which becomes the image tower without its head, or of
      both towers. What they lack starts at random.
    shapes: of the parameters, as `jax.eval_shape` makes them.
    path: where the weights are from, for messages.
    grid: (rows, columns) of patches wanted.
    seed: of what starts at random.

  Raises:
    errors.UserError: if the weights do not fit the model.
  """
  params, head = _random_params(model, seed), None
  if 'img' in weights.params:
    params |= weights.params
    head = params['img'].get('head')
    weights = dataclasses.replace(
      weights,
      params=params['img'],
      model=weights.model and weights.model['image'],
    )
  if 'b' not in shapes:  # Of the sigmoid loss only.
    params.pop('b', None)
  want = dict(shapes['img'])
  if 'head' in want:
    want['head'] = head or _random_head(want['head'], seed)
  params['img'] = checkpoint.adapt(
    weights, want, model.image, path=path, grid=grid
  )
  weights_lib.check_fit(
    weights_lib.flatten(params), weights_lib.flatten(shapes), path, 'the model'
  )
  return jax.tree.map(lambda x, s: np.asarray(x, s.dtype), params, shapes)


def _random_params(model: nn.Module, seed: int) -> dict[str, Any]:
  # Of texts alone: the image tower comes from the file.
  tokens = jnp.zeros((1, model.pp['max_len']), jnp.int32)
  return model.init(jax.random.key(seed), tokens=tokens)['params']


def _random_head(shapes: dict[str, Any], seed: int) -> dict[str, Any]:
  # Not zeros, as a ViT's: the direction of a zero embedding has no gradient.
  init = nn.initializers.lecun_normal()
  key = jax.random.fold_in(jax.random.key(seed), 1)
  return {
    'kernel': init(key, shapes['kernel'].shape),
    'bias': np.zeros(shapes['bias'].shape, np.float32),
  }
