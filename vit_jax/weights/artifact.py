"""What a run leaves: weights, config and labels in a folder other tools read."""

from collections.abc import Mapping
import os
import pathlib
import shutil
from typing import Any

import jax
import numpy as np

import vit_jax
from vit_jax.data import preprocessing as preprocessing_lib
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import storage
from vit_jax.weights import array_files
from vit_jax.weights import npz
from vit_jax.weights import record as weights_lib
from vit_jax.weights import to_huggingface
from vit_jax.weights import to_timm

WEIGHTS, CONFIG, LABELS = 'model.npz', 'config.json', 'labels.txt'
_FORMAT = 1
_EXPORTS = (to_huggingface.export, to_timm.export)


def save(directory: os.PathLike | str, weights: weights_lib.Weights) -> None:
  """Writes a folder with a trained model: all of it or nothing.

  `model.npz` has the official names. `model.safetensors` and the rest have
  those of transformers, so that `from_pretrained` opens the folder; those of
  timm for what transformers has no model for; else the official ones again.
  One that was there stays until the new one is whole.
  """
  arrays, contents = _for_pytorch(weights)
  contents.setdefault(CONFIG, {})
  contents[CONFIG] |= _config(weights)
  with files.replaced_folder(directory, last=CONFIG) as temporary:
    array_files.write_npz(
      weights_lib.flatten(weights.params), temporary / WEIGHTS
    )
    array_files.write_safetensors(arrays, temporary / array_files.SAFETENSORS)
    for name, content in contents.items():
      files.write_json(content, temporary / name)
    files.write_lines(weights.class_names, temporary / LABELS)
    if weights.vocabulary:
      name = contents[CONFIG]['vocabulary']
      shutil.copyfile(weights.vocabulary, temporary / name)


def _config(weights: weights_lib.Weights) -> dict[str, Any]:
  vocabulary = {}
  if weights.vocabulary:
    name = weights_lib.vocabulary_name(weights.model)
    vocabulary = {'vocabulary': name}
  preprocessing = weights.preprocessing
  return {
    'format': _FORMAT,
    'vit_jax': vit_jax.__version__,
    'model': dict(weights.model),
    'num_classes': len(weights.class_names),
    'image_shape': list(weights.image_shape),
    'image_mean': list(preprocessing.mean),
    'image_std': list(preprocessing.std),
    'exif': preprocessing.exif,
    'resize_test': preprocessing.resize_test,
    'loss': weights.loss,
    'info': dict(weights.info),
    **vocabulary,
  }


def _for_pytorch(
  weights: weights_lib.Weights,
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
  exports = () if weights.vocabulary else _EXPORTS
  for export in exports:
    try:
      return export(weights)
    except errors.UserError:
      continue
  return weights_lib.flatten(weights.params), {}


def is_artifact(directory: storage.Path) -> bool:
  """Whether a folder is what `save` wrote."""
  return 'format' in files.read_json(directory / CONFIG)


def load(directory: os.PathLike | str) -> weights_lib.Weights:
  """Reads what `save` wrote.

  Raises:
    errors.UserError: if a file is missing or damaged, or they do not agree.
  """
  directory = storage.local_path(directory)
  config, path = _read_config(directory), directory / WEIGHTS
  for name in (WEIGHTS, LABELS, config.get('vocabulary', LABELS)):
    if not (directory / name).is_file():
      raise errors.UserError(
        f'{directory} is not a whole artifact: {name} is missing.'
      )
  try:
    labels = files.read_lines(directory / LABELS)
    weights = weights_lib.Weights(
      params=npz.params_of(array_files.read_npz(path), path),
      model=config['model'],
      class_names=labels,
      preprocessing=_preprocessing(config),
      loss=config['loss'],
      info=config['info'],
      vocabulary=_vocabulary(directory, config),
    )
    if len(labels) != config['num_classes']:
      raise errors.UserError(
        f'{directory / LABELS} has {len(labels)} lines, {CONFIG} says'
        f' {config["num_classes"]} classes.'
      )
  except KeyError as e:
    raise errors.UserError(f'{directory / CONFIG} has no field {e}.') from e
  except (TypeError, ValueError) as e:
    if isinstance(e, errors.UserError):
      raise
    reason = errors.first_line(e)
    raise errors.UserError(f'{directory / CONFIG} is damaged: {reason}') from e
  weights_lib.check(weights, str(path))
  return weights


def _preprocessing(
  config: Mapping[str, Any],
) -> preprocessing_lib.Preprocessing:
  height, width, channels = config['image_shape']
  return preprocessing_lib.Preprocessing().changed(
    {
      'size': (height, width),
      'channels': channels,
      # Earlier versions had no fields of the next three.
      'mean': config.get('image_mean', [0.5]),
      'std': config.get('image_std', [0.5]),
      'resize_test': config.get('resize_test'),
      'exif': config['exif'],
    }
  )


def _vocabulary(
  directory: pathlib.Path, config: Mapping[str, Any]
) -> str | None:
  if 'vocabulary' not in config:
    return None
  return str(directory / config['vocabulary'])


def _read_config(directory: pathlib.Path) -> dict[str, Any]:
  path = directory / CONFIG
  config = files.read_json(path)
  if 'format' not in config:
    raise errors.UserError(
      f'{directory} is not an artifact: {path} is missing or of something else. A'
      f' run leaves one in its workdir, as WORKDIR/artifact.'
    )
  if config['format'] != _FORMAT:
    raise errors.UserError(
      f'{path} has format {config["format"]}, this version reads {_FORMAT}.'
    )
  return config


def to_numpy(params: Mapping[str, Any]) -> dict[str, Any]:
  """Fetches parameters from the devices, from those of other hosts too."""
  if jax.process_count() > 1:
    from jax.experimental import multihost_utils  # Not needed on one host.

    return multihost_utils.process_allgather(params, tiled=True)
  return jax.tree.map(np.asarray, dict(params))
