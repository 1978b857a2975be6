"""The table of formats; recognises, reads and converts weights by it."""

from collections.abc import Callable, Sequence
import dataclasses
import os
import pathlib
from typing import Any

import numpy.typing as npt

from vit_jax.configs import registry
from vit_jax.data import wordnet
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import storage
from vit_jax.weights import array_files
from vit_jax.weights import artifact
from vit_jax.weights import huggingface
from vit_jax.weights import npz
from vit_jax.weights import open_clip
from vit_jax.weights import record as weights_lib
from vit_jax.weights import to_huggingface
from vit_jax.weights import training_run
from vit_jax.weights import vocabularies
from vit_jax.weights.timm import from_timm
from vit_jax.weights.timm import to_timm


@dataclasses.dataclass(frozen=True)
class Format:
  """A format of weights.

  Attributes:
    find: returns the path to read if a path means this format, or None.
    read: reads that path.
    write: writes a new path as numbers of a dtype; None for formats that
      `convert` does not write.
  """

  find: Callable[[pathlib.Path], pathlib.Path | None]
  read: Callable[[pathlib.Path], weights_lib.Weights]
  write: (
    Callable[[weights_lib.Weights, pathlib.Path, npt.DTypeLike], None] | None
  ) = None


def _folder_writer(export: Callable[[weights_lib.Weights], Any]) -> Any:
  """Returns a writer of the arrays and JSON files that `export` returns."""

  def write(
    weights: weights_lib.Weights, path: pathlib.Path, dtype: npt.DTypeLike
  ) -> None:
    if dtype != 'float32':
      raise errors.UserError(f'dtype={dtype} is only for to=npz.')
    if weights.model is not None:
      weights.input_shape()  # Raises if it is not known.
    arrays, contents = export(weights)
    with files.replaced_folder(path) as folder:
      array_files.write_safetensors(arrays, folder / array_files.SAFETENSORS)
      for name, content in contents.items():
        files.write_json(content, folder / name)
      if weights.vocabulary:
        vocabularies.write(weights.known_model(), weights.vocabulary, folder)

  return write


# The first that recognises a path reads it.
FORMATS = {
  'artifact': Format(artifact.find, artifact.load),
  'run': Format(training_run.find_step, training_run.read),
  'open_clip': Format(open_clip.find, open_clip.read),
  'huggingface': Format(
    huggingface.find, huggingface.read, _folder_writer(to_huggingface.export)
  ),
  'timm': Format(
    from_timm.find, from_timm.read, _folder_writer(to_timm.export)
  ),
  'npz': Format(npz.find, npz.read, npz.write),
}

WRITABLE = tuple(name for name, x in FORMATS.items() if x.write)


def read(path: pathlib.Path) -> weights_lib.Weights:
  """Reads a file or folder of any format.

  Raises:
    errors.UserError: if it is cut or something else; the message says which.
  """
  try:
    with weights_lib.naming(path):
      weights = _read(path)
  except errors.UserError:
    raise
  except OSError as e:
    raise errors.UserError(
      f'{e.filename or path} cannot be read: {e.strerror or e}.'
    ) from e
  except weights_lib.DAMAGED as e:
    # Only common faults of other programs have messages of their own.
    raise errors.UserError(
      f'{path} cannot be read: its arrays or its config.json are damaged or'
      f' belong to another kind of model ({type(e).__name__}: {e}).'
    ) from e
  names = weights_lib.distinct(_class_names(weights, path))
  return dataclasses.replace(weights, source=str(path), class_names=names)


def _class_names(
  weights: weights_lib.Weights, path: pathlib.Path
) -> Sequence[str]:
  """Returns the classes; those that have only numbers get the names of their data."""
  if weights.class_names != weights_lib.numbered_classes(weights.params):
    return weights.class_names
  name = path.name if path.is_dir() else path.stem
  names = wordnet.names(registry.dataset_of(name))
  same = len(names) == len(weights.class_names)
  return names if same else weights.class_names


def _read(path: pathlib.Path) -> weights_lib.Weights:
  for format_ in FORMATS.values():
    if found := format_.find(path):
      return format_.read(found)
  names = array_files.safetensors_names(path)
  raise weights_lib.WeightsError(
    f'is a ViT of neither transformers nor timm: its {len(names)} arrays have'
    f' names such as {", ".join(names[:3])}.'
  )


def convert(
  weights: weights_lib.Weights,
  destination: str,
  to: str,
  dtype: str = 'float32',
) -> None:
  """Writes weights in another format, whole or not at all.

  A fitted temperature becomes part of the head.

  Args:
    weights: what `read` returns.
    destination: a new file for 'npz', which holds only arrays; otherwise a new
      folder, for `from_pretrained` of transformers or
      `timm.create_model('local-dir:...', pretrained=True)`.
    to: one of `WRITABLE`.
    dtype: 'float32', or 'float16' for an `.npz` of half the size.

  Raises:
    errors.UserError: if the destination exists or the library lacks the model.
  """
  path, write = storage.local_path(destination), FORMATS[to].write
  assert write is not None
  if os.path.lexists(path):
    raise errors.UserError(f'{path} exists. Delete it or name another.')
  try:
    write(weights.with_temperature_in_head(), path, dtype)
  except OSError as e:
    raise errors.UserError(f'{path} cannot be written: {e.strerror}.') from e
