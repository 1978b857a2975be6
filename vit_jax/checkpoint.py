"""Checkpoints of every format: load, adapt to another task, save."""

from collections.abc import Mapping
import os
from typing import Any

import numpy as np
import numpy.typing as npt

from vit_jax.configs import models as model_configs
from vit_jax.runtime import official
from vit_jax.weights import adaptation
from vit_jax.weights import array_files
from vit_jax.weights import formats
from vit_jax.weights import record as weights_lib
from vit_jax.weights import released

Params = dict[str, Any]

# The names that the official code has here.
adapt = adaptation.adapt
adapt_kernel = adaptation.adapt_kernel
at_size = adaptation.at_size
interpolate_posembed = adaptation.interpolate_posembed


def __getattr__(name: str) -> Any:
  """Names what replaces a function of the official module."""
  raise official.missing(__name__, name)


def load(path: os.PathLike | str) -> Params:
  """Loads a checkpoint of any format, see `read`, with today's official names.

  >>> params = checkpoint.load('ViT-Mini_8')
  >>> params['embedding']['kernel'].shape
  (8, 8, 3, 192)
  """
  return dict(read(path).params)


def read(
  path: os.PathLike | str, size: int | tuple[int, int] | None = None
) -> weights_lib.Weights:
  """Reads a checkpoint of any format and all that is needed to run it.

  >>> checkpoint.read('ViT-Mini_8').preprocessing.size
  (64, 64)

  Args:
    path: a file, a folder, a URL, a repository `hf://ORGANISATION/NAME` of the
      Hugging Face hub or a released name. Formats are official `.npz` (of the
      release, of Linen, of big_vision), `.safetensors` of transformers, timm or
      open_clip, or their folder, and an artifact or workdir of a run, whose newest
      checkpoint is read.
    size: (height, width) of the input in pixels, or one number for both, see
      `at_size`; None for the size of the weights.

  Raises:
    errors.UserError: if it is missing, cut, or something else; the message says
      which.
  """
  weights = formats.read(released.find(str(path)))
  if isinstance(size, (int, np.integer)):
    size = int(size), int(size)
  return at_size(weights, size) if size else weights


def load_pretrained(
  *,
  pretrained_path: os.PathLike | str,
  init_params: Mapping[str, Any],
  model_config: model_configs.ModelConfig,
  grid: tuple[int, int] | None = None,
  pretrained_grid: tuple[int, int] | None = None,
) -> Params:
  """Loads a checkpoint, see `read`, and adapts it, see `adapt`.

  >>> model = models.get_model('ViT-Mini_8', num_classes=3)
  >>> params = checkpoint.load_pretrained(
  ...   pretrained_path='ViT-Mini_8',
  ...   init_params=models.init_params(model, (48, 48, 3)),
  ...   model_config=configs.models.get_model_config('ViT-Mini_8'),
  ... )
  >>> params['head']['kernel'].shape
  (192, 3)
  """
  return adapt(
    read(pretrained_path),
    init_params,
    model_config,
    grid=grid,
    pretrained_grid=pretrained_grid,
  )


def save(
  params: Mapping[str, Any],
  path: os.PathLike | str,
  dtype: npt.DTypeLike = np.float32,
) -> None:
  """Writes parameters as an official `.npz`, whole or not at all.

  >>> checkpoint.save(checkpoint.load('ViT-Mini_8'), 'mini.npz', np.float16)
  """
  array_files.write_npz(weights_lib.flatten(params), path, dtype)
