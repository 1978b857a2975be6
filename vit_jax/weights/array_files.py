"""Arrays in files, `.npz` and `.safetensors`, and what a wrong file is."""

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import json
import os
import pathlib
from typing import Any
import zipfile
import zlib

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy

from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import storage
from vit_jax.runtime import workdir
from vit_jax.weights import kinds

# How much more than its own size an .npz may take in memory, and what any may.
_MAX_RATIO, _MAX_SMALL = 20, 1 << 28


Arrays = dict[str, np.ndarray]

SAFETENSORS = 'model.safetensors'  # In every folder that has one.

# What NumPy raises at files that are cut, damaged or something else.
_NPZ_ERRORS = (
  AttributeError,
  EOFError,
  MemoryError,
  NotImplementedError,
  OSError,
  RuntimeError,  # It is encrypted.
  TypeError,
  ValueError,
  zipfile.BadZipFile,
  zlib.error,
)


def read_npz(path: pathlib.Path) -> Arrays:
  """Reads the arrays of an `.npz`, those of numbers with a point in float32.

  Raises:
    errors.UserError: if it is cut, or something else; the message says what.
  """
  try:
    _check_unpacked_size(path)
    with np.load(path, allow_pickle=False) as arrays:
      return {n: _as_float32(_as_array(arrays[n])) for n in arrays.files}
  except errors.UserError:
    raise
  except _NPZ_ERRORS as e:
    raise errors.UserError(
      f'{path} cannot be read as an .npz: it is {kinds.what_it_is(path)}.'
    ) from e


def _check_unpacked_size(path: pathlib.Path) -> None:
  """Raises `errors.UserError` at a zip that is very much larger inside."""
  with zipfile.ZipFile(path) as archive:
    size = sum(member.file_size for member in archive.infolist())
  most = _MAX_RATIO * path.stat().st_size + _MAX_SMALL
  if size > most:
    raise errors.UserError(
      f'{path} would take {size} bytes of memory, more than the {most} that a'
      f' file of its size may: is it a checkpoint?'
    )


def _as_array(array: np.ndarray) -> np.ndarray:
  # NumPy writes bfloat16 as two bytes without a meaning.
  return array.view(jnp.bfloat16) if array.dtype == 'V2' else array


def write_npz(
  arrays: Mapping[str, Any],
  path: os.PathLike | str,
  dtype: npt.DTypeLike = np.float32,
) -> None:
  """Writes arrays of one dtype, whole or not at all."""
  with (
    files.replaced_file(storage.local_path(path)) as temporary,
    open(temporary, 'wb') as f,
  ):
    np.savez(f, **{k: np.asarray(v, dtype) for k, v in arrays.items()})


def is_safetensors(path: pathlib.Path) -> bool:
  """Whether a file starts as a `.safetensors` does."""
  with open(path, 'rb') as f:
    return f.read(9)[8:] == b'{'


def read_safetensors(path: pathlib.Path) -> Arrays:
  """Reads a `.safetensors`, or the folder that has it, in shards or not.

  Floating-point numbers come as float32.

  Raises:
    errors.UserError: if a file is missing, cut, or something else.
  """
  arrays = {}
  for file in _shards(path):
    for name in safetensors_names(file):
      # Opened for each: the mapped pages would stay, and double the memory.
      with _open_safetensors(file) as f:
        arrays[name] = _as_float32(f.get_tensor(name))
  return arrays


def safetensors_names(path: pathlib.Path) -> list[str]:
  """Returns the names of the arrays that `read_safetensors` would read."""
  names = []
  for file in _shards(path):
    with _open_safetensors(file) as f:
      names += f.keys()
  return sorted(names)


@contextlib.contextmanager
def _open_safetensors(path: pathlib.Path) -> Iterator[Any]:
  try:
    with safetensors.safe_open(path, framework='np') as f:
      yield f
  except (OSError, TypeError, safetensors.SafetensorError) as e:
    raise errors.UserError(
      f'{path} cannot be read as a .safetensors: it is {kinds.what_it_is(path)}.'
    ) from e


def _as_float32(array: np.ndarray) -> np.ndarray:
  is_float = jnp.issubdtype(array.dtype, jnp.floating)
  return array.astype(np.float32, copy=False) if is_float else array


def _shards(folder: pathlib.Path) -> Sequence[pathlib.Path]:
  if not folder.is_dir():
    return [folder]
  single = folder / SAFETENSORS
  index = folder / f'{SAFETENSORS}.index.json'
  if single.is_file():
    return [single]
  if not index.is_file():
    pickles = sorted(folder.glob('*.bin')) + sorted(folder.glob('*.pth'))
    hint = f' {pickles[0].name} is {kinds.PICKLE}.' if pickles else ''
    raise errors.UserError(f'{_without_weights(folder)}{hint}')
  try:
    names = sorted(set(json.loads(index.read_text())['weight_map'].values()))
    if any(pathlib.PurePath(name).name != name for name in names):
      raise ValueError('shards must be names of files beside it')
  except (ValueError, KeyError, AttributeError, TypeError) as e:
    raise errors.UserError(f'{index} is damaged: {e!r}.') from e
  missing = [name for name in names if not (folder / name).is_file()]
  if missing:
    raise errors.UserError(
      f'{folder} is not whole: {len(missing)} of {len(names)} shards are'
      f' missing, {", ".join(missing[:3])}. Fetch them too.'
    )
  return [folder / name for name in names]


def _without_weights(folder: pathlib.Path) -> str:
  """Says what a folder lacks, and which of its files may be meant."""
  if workdir.at(folder).checkpoints.is_dir():
    return f'{folder} is a workdir whose run has saved no whole checkpoint yet.'
  others = sorted(
    path.name
    for path in folder.iterdir()
    if path.suffix in ('.npz', '.safetensors')
  )
  hint = f' It has {", ".join(others[:3])}: give that path.' if others else ''
  return (
    f'{folder} holds no weights: it has no {SAFETENSORS}, is not the artifact of'
    f' a run, and has no checkpoints/ of one.{hint}'
  )


def write_safetensors(
  arrays: Mapping[str, Any], path: os.PathLike | str
) -> None:
  """Writes float32 arrays as PyTorch's libraries expect them, whole or not."""
  arrays = {n: np.ascontiguousarray(x, np.float32) for n, x in arrays.items()}
  with files.replaced_file(storage.local_path(path)) as temporary:
    temporary.touch()
    mode = temporary.stat().st_mode  # It makes files that nobody else may read.
    # transformers refuses files that do not say so.
    safetensors.numpy.save_file(arrays, temporary, metadata={'format': 'pt'})
    temporary.chmod(mode)
