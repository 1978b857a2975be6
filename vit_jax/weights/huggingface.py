"""Reads models of transformers: those of `families`."""

from collections.abc import Mapping, Sequence
import math
import pathlib
from typing import Any

from absl import logging

from vit_jax.configs import labels as labels_lib
from vit_jax.runtime import files
from vit_jax.weights import array_files
from vit_jax.weights import checks
from vit_jax.weights import extras
from vit_jax.weights import families
from vit_jax.weights import other_models
from vit_jax.weights import pillow_filters
from vit_jax.weights import record as weights_lib
from vit_jax.weights import vocabularies
from vit_jax.weights.families import state_dicts

_BICUBIC_PROCESSORS = (  # Where the file does not say it.
  'BitImageProcessor',
  'CLIPImageProcessor',
  'SiglipImageProcessor',
)

_COLOURS = ('image_mean', 'image_std')

# The `problem_type` of the sigmoid loss, and of numbers.
SIGMOID, NUMBERS = 'multi_label_classification', 'regression'

# Fields of weights, by `problem_type`.
_OF_PROBLEM: Mapping[str, dict[str, str]] = {
  SIGMOID: {'loss': 'sigmoid', 'task': labels_lib.MULTILABEL},
  NUMBERS: {'loss': 'l2', 'task': labels_lib.REGRESSION},
}


def find(path: pathlib.Path) -> pathlib.Path | None:
  """Returns a `.safetensors`, or its folder, of a model of transformers."""
  if not array_files.is_safetensors(path):
    return None
  names = array_files.safetensors_names(path)
  is_vit = any('embeddings.patch_embeddings.' in name for name in names)
  is_ours = is_vit or 'model_type' in files.read_json(path / 'config.json')
  return path if is_ours else None


def read(path: pathlib.Path) -> weights_lib.Weights:
  """Reads a folder of `save_pretrained`, or a `.safetensors` with its names.

  Without a `config.json` beside it, a file has the defaults of `ViTConfig`: the
  exact GELU and an epsilon of 1e-12.
  """
  arrays = array_files.read_safetensors(path)
  folder = path if path.is_dir() else path.parent
  weights = from_state_dict(
    arrays,
    files.read_json(folder / 'config.json'),
    _preprocessor(folder),
    path.stem,
  )
  return vocabularies.find(weights, folder)


def _preprocessor(folder: pathlib.Path) -> Mapping[str, Any]:
  """Returns how images are prepared, of the file that has it; {} without one.

  transformers 5 writes that of images and texts together.
  """
  alone = files.read_json(folder / 'preprocessor_config.json')
  both = files.read_json(folder / 'processor_config.json')
  return alone or both.get('image_processor') or {}


def from_state_dict(
  arrays: Mapping[str, Any],
  config: Mapping[str, Any],
  preprocessor: Mapping[str, Any],
  model_name: str = 'model',
) -> weights_lib.Weights:
  """Returns the weights in a state dict and its JSON files, which may be empty.

  The pooler of a `ViTModel` is the `pre_logits` layer of the official models.
  """
  family = _family(config.get('model_type', 'vit'), arrays)
  weights, names = state_dicts.read(family, arrays, config, model_name)
  defaults = dict(family.preprocessor)
  if weights.preprocessing.channels != 3:  # Theirs are those of colours.
    defaults = {k: v for k, v in defaults.items() if k not in _COLOURS}
  preprocessor = {**defaults, **preprocessor}
  weights = _describe(weights, config, preprocessor)
  checks.check(weights, names)
  return weights


def _family(kind: str, arrays: Mapping[str, Any]) -> families.Family:
  family = families.find(kind, arrays)
  if family is not None:
    return family
  reason = other_models.reason(kind)
  if reason is None:
    known = ', '.join(families.kinds())
    reason = f'which is not known; those that can be read are {known}'
  raise weights_lib.WeightsError(
    f'is a model of type {kind!r} of transformers, {reason}.'
  )


def _describe(
  weights: weights_lib.Weights,
  config: Mapping[str, Any],
  preprocessor: Mapping[str, Any],
) -> weights_lib.Weights:
  """Returns weights with the fields of the JSON files."""
  size = weights.preprocessing.size
  class_names = weights.class_names
  if class_names and (labels := config.get('id2label')):
    labels = {int(i): name for i, name in labels.items()}
    class_names = [labels.get(i, n) for i, n in enumerate(class_names)]
  mean, std = _normalisation(preprocessor)
  model_name = weights.known_model()['model_name']
  resize_test = _resize_test(preprocessor, size, model_name)
  return extras.described(
    weights,
    config,
    {
      'size': size,
      'mean': mean,
      'std': std,
      'resize_test': resize_test,
      'interpolation': _interpolation(preprocessor, model_name),
    },
    class_names=class_names,
    **_OF_PROBLEM.get(config.get('problem_type', ''), {}),
  )


def _normalisation(
  preprocessor: Mapping[str, Any],
) -> tuple[Sequence[float] | None, Sequence[float] | None]:
  """Returns mean and standard deviation of pixels in [0, 1]."""
  mean, std = preprocessor.get('image_mean'), preprocessor.get('image_std')
  if not preprocessor.get('do_normalize', True):
    mean, std = (0.0,), (1.0,)
  factor = preprocessor.get('rescale_factor', 1 / 255)
  scale = 255 * (factor if preprocessor.get('do_rescale', True) else 1)
  if math.isclose(scale, 1):
    return mean, std
  mean, std = mean or (0.5,), std or (0.5,)
  return tuple(x / scale for x in mean), tuple(x / scale for x in std)


def _interpolation(
  preprocessor: Mapping[str, Any], model_name: str
) -> str | None:
  """Returns how images are resized; None if nothing tells."""
  name = preprocessor.get('image_processor_type', '').removesuffix('Fast')
  usual = 'bicubic' if name in _BICUBIC_PROCESSORS else None
  resample = preprocessor.get('resample', usual)
  return pillow_filters.interpolation(resample, model_name)


def _resize_test(
  preprocessor: Mapping[str, Any],
  size: tuple[int, int] | None,
  model_name: str,
) -> int | tuple[int, int] | None:
  """Returns the size to which transformers resizes before a centre crop."""
  if size is None or not preprocessor.get('do_center_crop'):
    return None
  crop, resize = preprocessor.get('crop_size'), preprocessor.get('size')
  if crop is None and resize is None and size[0] == size[1]:
    return size[0]  # Of a family that does so, without a file that says it.
  crop = _height_width(crop) if isinstance(crop, dict | int) else crop
  if isinstance(resize, dict) and 'shortest_edge' in resize:
    resize = resize['shortest_edge']
    is_large = resize >= max(size)
  elif isinstance(resize, dict):
    resize = _height_width(resize)
    is_large = resize[0] >= size[0] and resize[1] >= size[1]
  else:  # Old files give the shorter side.
    is_large = isinstance(resize, int) and resize >= max(size)
  if crop in (None, size) and is_large:
    return resize
  logging.warning(
    '%s: transformers resizes images to %s and crops the centre, %s, but the'
    ' model takes images of %s: whole images are resized.',
    model_name,
    resize,
    crop,
    size,
  )
  return None


def _height_width(size: Any) -> tuple[int, int]:
  """Returns (height, width) of a size written by transformers."""
  if isinstance(size, int):
    return size, size
  return size['height'], size['width']
