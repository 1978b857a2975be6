"""Weights and vocabularies of LiT models: found, downloaded, put together."""

import pathlib
from typing import Any

from absl import logging
import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from vit_jax import checkpoint
from vit_jax import download
from vit_jax import errors
from vit_jax import released
from vit_jax.configs import models as model_configs

_BUCKET = 'gs://vit_models/lit'
_SUFFIXES = {'bert': '.txt', 'sentencepiece': '.model'}


def full_name(model: str) -> str | None:
  """Returns `LiT-B16B` for itself or `lit_b16b`; None if there is no such."""
  for name, config in model_configs.MODEL_CONFIGS.items():
    if 'text_model' in config and model in (
      name,
      model_configs.short_name(name),
    ):
      return name
  return None


def find_weights(name_or_path: str, directory: str) -> pathlib.Path:
  """Returns the path of a checkpoint: as `released.find`, LiT's names too.

  Raises:
    errors.UserError: if it is not there and cannot be downloaded.
  """
  name = full_name(name_or_path)
  if name is None:
    return released.find(name_or_path, directory)
  return _find(f'{name}.npz', directory)


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
      f' Give its file: --config.vocabulary=FILE.'
    )
  return str(_find(name + _SUFFIXES[model['pp']['tokenizer_name']], directory))


def _find(file: str, directory: str) -> pathlib.Path:
  source, folder = _BUCKET, directory
  if download.is_url(directory):
    source, folder = directory.rstrip('/'), 'checkpoints'
  path = pathlib.Path(folder) / file
  if not path.is_file():
    try:
      download.download(f'{source}/{file}', path)
    except errors.UserError as e:
      raise errors.UserError(
        f'{path} is missing and could not be downloaded. {e} Fetch it where'
        f' there is internet and put it at {path.resolve()}.'
      ) from e
  return path


def check_params(
  params: dict[str, Any], shapes: dict[str, Any], path: str
) -> None:
  """Raises `errors.UserError` unless names and shapes are the same."""
  checkpoint.check_fit(
    flax.traverse_util.flatten_dict(params, sep='/'),
    flax.traverse_util.flatten_dict(shapes, sep='/'),
    path,
    'the model',
  )


def initial_params(
  model: nn.Module,
  path: pathlib.Path,
  shapes: dict[str, Any],
  *,
  grid: tuple[int, int],
  pretrained_grid: tuple[int, int] | None = None,
  seed: int = 0,
) -> dict[str, Any]:
  """Returns parameters to start from.

  Args:
    model: the LiT model.
    path: `.npz` of a ViT, which becomes the image tower without its head, or of
      both towers. What it lacks starts at random.
    shapes: of the parameters, as `jax.eval_shape` makes them.
    grid: (rows, columns) of patches wanted.
    pretrained_grid: the same of the file; None if it is square.
    seed: of what starts at random.

  Raises:
    errors.UserError: if the file is no checkpoint or does not fit the model.
  """
  file = checkpoint.load(path)
  if 'img' not in file:
    for name in ('head', 'pre_logits'):
      file.pop(name, None)
    file = {'img': file}
  logging.info('From %s: %s.', path, ', '.join(sorted(file)))
  params = {**_random_params(model, seed), **file}
  if 'b' not in shapes:  # Of the sigmoid loss only.
    params.pop('b', None)
  image = params['img'] = dict(params['img'])
  if 'head' in shapes['img'] and 'head' not in image:
    image['head'] = _random_head(shapes['img']['head'], seed)
  if 'Transformer' in image and 'posembed_input' in image['Transformer']:
    posemb = image['Transformer']['posembed_input']
    want = shapes['img']['Transformer']['posembed_input']['pos_embedding']
    posemb['pos_embedding'] = checkpoint.interpolate_posembed(
      posemb['pos_embedding'],
      want.shape[1],
      model.image['classifier'] == 'token',
      grid=grid,
      old_grid=pretrained_grid,
    )
  check_params(params, shapes, str(path))
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
