"""Checkpoints of every format: load, adapt to another task, save."""

from collections.abc import Mapping
import os
from typing import Any

import numpy as np
import numpy.typing as npt

from vit_jax import official
from vit_jax.configs import models as model_configs
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
  """Loads the parameters of a checkpoint of any format, see `read`.

  Returns:
    A nested dict of NumPy arrays with the names of today's official code.
  """
  return dict(read(path).params)


def read(path: os.PathLike | str) -> weights_lib.Weights:
  """Reads a checkpoint, and what is needed to run it, of any format.

  Args:
    path: a file, a folder, a URL or a released name: an official `.npz` (of
      the release, of Linen, of big_vision), a `.safetensors` of Hugging Face's
      transformers or of timm or the folder that has it, an artifact of a run,
      or its workdir, whose newest checkpoint is read.

  Raises:
    errors.UserError: if it is absent, cut, or something else; the message
      says what it is.
  """
  return formats.read(released.find(str(path)))


def load_pretrained(
  *,
  pretrained_path: os.PathLike | str,
  init_params: Mapping[str, Any],
  model_config: model_configs.ModelConfig,
  grid: tuple[int, int] | None = None,
  pretrained_grid: tuple[int, int] | None = None,
) -> Params:
  """Loads a checkpoint and adapts it for fine-tuning, see `adapt`.

  Args:
    pretrained_path: see `read`.
    init_params: see `adapt`.
    model_config: as in `configs.models`.
    grid: (rows, columns) of patches wanted; None if it is square.
    pretrained_grid: the same of the checkpoint, where it does not tell.

  Returns:
    Parameters with the names and shapes of `init_params`.

  Raises:
    errors.UserError: if the file is no checkpoint or of another variant.
  """
  weights = read(pretrained_path)
  return adapt(
    weights,
    init_params,
    model_config,
    path=str(pretrained_path),
    grid=grid,
    pretrained_grid=pretrained_grid,
  )


def save(
  params: Mapping[str, Any],
  path: os.PathLike | str,
  dtype: npt.DTypeLike = np.float32,
) -> None:
  """Writes parameters as an official `.npz`, whole or not at all."""
  array_files.write_npz(weights_lib.flatten(params), path, dtype)
