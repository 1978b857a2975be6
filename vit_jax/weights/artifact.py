"""The folder with the trained model of a run, which other tools read too."""

from collections.abc import Mapping
import contextlib
import os
import pathlib
import types
from typing import Any

import jax
import numpy as np

import vit_jax
from vit_jax.data import preprocessing as preprocessing_lib
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import storage
from vit_jax.weights import array_files
from vit_jax.weights import checks
from vit_jax.weights import extras
from vit_jax.weights import npz
from vit_jax.weights import record as weights_lib
from vit_jax.weights import to_huggingface
from vit_jax.weights import vocabularies
from vit_jax.weights.timm import to_timm

WEIGHTS, CONFIG, LABELS = 'model.npz', 'config.json', 'labels.txt'
LORA = 'lora.npz'
_FORMAT = 1

# Fields of `Weights` that earlier versions did not write.
_LATER = ('task', 'thresholds', 'temperature', 'units')


def save(
  directory: os.PathLike | str,
  weights: weights_lib.Weights,
  matrices: Mapping[str, Any] = types.MappingProxyType({}),
) -> None:
  """Writes a folder with a trained model, whole or not at all.

  `model.npz` has the official names. `model.safetensors` and the JSON files are
  for `from_pretrained` of transformers, or for timm if transformers has no such
  model, or repeat the official names. `lora.npz` has the `matrices` of LoRA, if there
  are some, which the kernels contain. An old artifact stays until the end.
  """
  arrays, contents = _for_pytorch(weights.with_temperature_in_head())
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
    if matrices:
      array_files.write_npz(dict(matrices), temporary / LORA)
    if weights.vocabulary:
      vocabularies.write(weights.known_model(), weights.vocabulary, temporary)


def _config(weights: weights_lib.Weights) -> dict[str, Any]:
  preprocessing = weights.preprocessing
  config = {
    'format': _FORMAT,
    'vit_jax': vit_jax.__version__,
    'model': dict(weights.known_model()),
    'num_classes': len(weights.class_names),
    'image_shape': list(weights.input_shape()),
    'image_mean': list(preprocessing.mean),
    'image_std': list(preprocessing.std),
    'exif': preprocessing.exif,
    'interpolation': preprocessing.interpolation,
    'resize_test': preprocessing.resize_test,
    'loss': weights.loss,
    'task': weights.task,
    'thresholds': list(weights.thresholds),
    'temperature': weights.temperature,
    'units': list(weights.units),
    'info': dict(weights.info),
  }
  if weights.vocabulary:
    config['vocabulary'] = vocabularies.name(
      weights.known_model(), weights.vocabulary
    )
  return config


def _for_pytorch(
  weights: weights_lib.Weights,
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
  exports = [to_huggingface.export]
  if not weights.spec.has_texts:  # timm has image towers alone.
    exports.append(to_timm.export)
  for export in exports:
    with contextlib.suppress(errors.UserError):
      return export(weights)
  return weights_lib.flatten(weights.params), {}


def is_artifact(directory: storage.Path) -> bool:
  """Whether `save` wrote a folder, and transformers has not saved its own since."""
  config = files.read_json(directory / CONFIG)
  return 'format' in config and not extras.is_saved_again(config)


def info(directory: storage.Path) -> dict[str, Any]:
  """Returns how the weights of a folder were made, see `Weights`; {} if unknown."""
  return files.read_json(directory / CONFIG).get('info', {})


def find(path: pathlib.Path) -> pathlib.Path | None:
  """Returns the artifact that `path` is, or whose weights it is, or None."""
  if path.is_file() and path.name in (WEIGHTS, array_files.SAFETENSORS):
    path = path.parent
  return path if is_artifact(path) else None


def load(directory: os.PathLike | str) -> weights_lib.Weights:
  """Reads an artifact, and checks that its files agree."""
  directory = storage.local_path(directory)
  config, path = _read_config(directory), directory / WEIGHTS
  vocabulary = config.get('vocabulary')
  for name in (WEIGHTS, LABELS, *([vocabulary] if vocabulary else ())):
    if not (directory / name).is_file():
      raise errors.UserError(
        f'{directory} is not a whole artifact: {name} is missing.'
      )
  labels = files.read_lines(directory / LABELS)
  with weights_lib.naming(path):
    params = npz.params_of(array_files.read_npz(path))
    try:
      weights = weights_lib.Weights(
        params=params,
        model=config['model'],
        class_names=labels,
        preprocessing=_preprocessing(config),
        loss=config['loss'],
        **{name: config[name] for name in _LATER if name in config},
        info=config['info'],
        vocabulary=str(directory / vocabulary) if vocabulary else None,
        source=str(directory),
      )
      num_classes = config['num_classes']
    except KeyError as e:
      raise errors.UserError(f'{directory / CONFIG} has no field {e}.') from e
    except (TypeError, ValueError) as e:
      reason = f'is damaged: {errors.first_line(e)}'
      raise errors.UserError(f'{directory / CONFIG} {reason}') from e
    if len(labels) != num_classes:
      raise errors.UserError(
        f'{directory / LABELS} has {len(labels)} lines, but {CONFIG} says'
        f' {num_classes} classes.'
      )
    checks.check(weights)
  return weights


def _preprocessing(
  config: Mapping[str, Any],
) -> preprocessing_lib.Preprocessing:
  height, width, channels = config['image_shape']
  return preprocessing_lib.Preprocessing().changed(
    {
      'size': (height, width),
      'channels': channels,
      # Earlier versions did not write the next four.
      'mean': config.get('image_mean', [0.5]),
      'std': config.get('image_std', [0.5]),
      'resize_test': config.get('resize_test'),
      'interpolation': config.get('interpolation', 'bilinear'),
      'exif': config['exif'],
    }
  )


def _read_config(directory: pathlib.Path) -> dict[str, Any]:
  path = directory / CONFIG
  config = files.read_json(path)
  if 'format' not in config:
    raise errors.UserError(
      f'{directory} is not an artifact: {path} is missing or of another kind. A'
      f' run writes its artifact to WORKDIR/artifact.'
    )
  if config['format'] != _FORMAT:
    raise errors.UserError(
      f'{path} has format {config["format"]}, this version reads {_FORMAT}.'
    )
  return config


def to_numpy(params: Mapping[str, Any]) -> dict[str, Any]:
  """Fetches parameters from the devices of all hosts."""
  if jax.process_count() > 1:
    from jax.experimental import multihost_utils  # Not needed on one host.

    return multihost_utils.process_allgather(params, tiled=True)
  return jax.tree.map(np.asarray, dict(params))
