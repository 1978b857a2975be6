"""Which format a file or folder of weights has; reads them all."""

import pathlib

from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.weights import array_files
from vit_jax.weights import artifact
from vit_jax.weights import huggingface
from vit_jax.weights import npz
from vit_jax.weights import record as weights_lib
from vit_jax.weights import timm
from vit_jax.weights import timm_names
from vit_jax.weights import training_run

# What comes of shapes, names and settings that are not as they should be.
_DAMAGED = (
  AttributeError,
  IndexError,
  KeyError,
  TypeError,
  ValueError,
  ZeroDivisionError,
)


def read(path: pathlib.Path) -> weights_lib.Weights:
  """Reads a file or folder of any of the formats of `checkpoint.read`.

  Raises:
    errors.UserError: if it is cut, or something else; the message says what.
  """
  try:
    return _read_folder(path) if path.is_dir() else _read_file(path)
  except errors.UserError:
    raise
  except OSError as e:
    raise errors.UserError(
      f'{e.filename or path} cannot be read: {e.strerror or e}.'
    ) from e
  except _DAMAGED as e:
    # Of what others write, only the common faults have messages of their own.
    raise errors.UserError(
      f'{path} cannot be read: its arrays, or what its config.json says, are'
      f' damaged or of another kind of model ({type(e).__name__}: {e}).'
    ) from e


def _read_file(path: pathlib.Path) -> weights_lib.Weights:
  is_in_artifact = path.name in (artifact.WEIGHTS, array_files.SAFETENSORS)
  if is_in_artifact and artifact.is_artifact(path.parent):
    return artifact.load(path.parent)
  if array_files.is_safetensors(path):
    return _read_safetensors(path)
  with open(path, 'rb') as f:
    is_zip = f.read(2) == b'PK'
  if path.suffix == '.safetensors' and not is_zip:
    return _read_safetensors(path)
  return npz.read(path)


def _read_folder(folder: pathlib.Path) -> weights_lib.Weights:
  if artifact.is_artifact(folder):
    return artifact.load(folder)
  if step := training_run.find_step(folder):
    return training_run.read(step)
  config = files.read_json(folder / 'config.json')
  if 'model_type' in config:
    return huggingface.read(folder)
  if 'architecture' in config:
    return timm.read(folder)
  return _read_safetensors(folder)


def _read_safetensors(path: pathlib.Path) -> weights_lib.Weights:
  names = array_files.safetensors_names(path)
  if huggingface.is_names(names):
    return huggingface.read(path)
  if timm_names.is_names(names):
    return timm.read(path)
  if any('/' in name for name in names):
    return npz.from_flat(array_files.read_safetensors(path), path)
  raise errors.UserError(
    f'{path} holds neither a ViT of transformers nor of timm: its'
    f' {len(names)} arrays have names such as {", ".join(names[:3])}.'
  )
