"""Reads and writes arrays, `.npz` and `.safetensors`; identifies wrong files."""

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import json
import os
import pathlib
import textwrap
from typing import Any
import zipfile
import zlib

from absl import logging
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy

from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import storage
from vit_jax.runtime import workdir

# An .npz may take this many times its size in memory, plus this many bytes.
_MAX_RATIO, _MAX_SMALL = 20, 1 << 28
_MAX_SAFETENSORS = 1 << 44  # A header that gives a larger size is damaged.

Arrays = dict[str, np.ndarray]

SAFETENSORS = 'model.safetensors'  # The name in artifacts and in folders of transformers and timm.

# NumPy raises these for files that are cut, damaged or something else.
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

# Types of a `.safetensors`; integers are places and counts, which are not read.
_TYPES = ('F64', 'F32', 'F16', 'BF16', 'I64', 'BOOL')

_SIGNATURES = (  # What a wrong file starts with, and what it is.
  (b'version https://git-lfs', 'a Git LFS pointer: run `git lfs pull`'),
  (b'<', 'an HTML or XML page, perhaps the error page of a download'),
  (b'\x93NUMPY', 'a single .npy array'),
  (b'\x89HDF', 'an HDF5 file'),
)

_PICKLE = (
  'a pickle, which is never opened: it could run code. Where torch is'
  ' installed, safetensors.torch.save_file(torch.load(FILE,'
  " weights_only=True), 'model.safetensors') converts it"
)


def read_npz(path: pathlib.Path) -> Arrays:
  """Reads the arrays of an `.npz`, floating-point ones as float32."""
  try:
    _check_unpacked_size(path)
    with np.load(path, allow_pickle=False) as arrays:
      # NumPy writes bfloat16 as two bytes without a meaning.
      return {
        name: _as_float32(x.view(jnp.bfloat16) if x.dtype == 'V2' else x)
        for name, x in arrays.items()
      }
  except errors.UserError:
    raise
  except _NPZ_ERRORS as e:
    raise errors.UserError(
      f'{path} cannot be read as an .npz: it is {_what_it_is(path)}.'
    ) from e


def _check_unpacked_size(path: pathlib.Path) -> None:
  """Raises `errors.UserError` for a zip that unpacks to far more memory."""
  with zipfile.ZipFile(path) as archive:
    size = sum(member.file_size for member in archive.infolist())
  most = _MAX_RATIO * path.stat().st_size + _MAX_SMALL
  if size > most:
    raise errors.UserError(
      f'{path} would take {size} bytes of memory, but a file of its size may'
      f' take {most}: is it a checkpoint?'
    )


def write_npz(
  arrays: Mapping[str, Any],
  path: os.PathLike | str,
  dtype: npt.DTypeLike = np.float32,
) -> None:
  """Writes arrays as one dtype, whole or not at all.

  Warns about arrays whose numbers are too small for the dtype.

  Raises:
    errors.UserError: if a number is too large for the dtype.
  """
  with (
    files.replaced_file(storage.local_path(path)) as temporary,
    open(temporary, 'wb') as f,
  ):
    typed: dict[str, Any] = {
      name: _typed(name, np.asarray(x), dtype) for name, x in arrays.items()
    }
    np.savez(f, **typed)
  small = [name for name, x in arrays.items() if _underflows(x, typed[name])]
  if small:
    names = textwrap.shorten(', '.join(small), 500)
    logging.warning(
      '%s: the numbers of %s are too small for %s, which rounds them by more than'
      ' 1 %%, or to 0. Write float32 if they matter.',
      path,
      names,
      np.dtype(dtype),
    )


def _underflows(array: Any, typed: np.ndarray) -> bool:
  """Returns whether even the largest number of an array changes by over 1 %."""
  largest, rounded = (float(np.abs(x).max(initial=0)) for x in (array, typed))
  return abs(rounded - largest) > 0.01 * largest


def _typed(name: str, array: np.ndarray, dtype: npt.DTypeLike) -> np.ndarray:
  with np.errstate(over='ignore'):
    typed = array.astype(dtype, copy=False)
  if np.isinf(typed).any() and not np.isinf(array).any():
    raise errors.UserError(
      f'{name} has the number {np.abs(array).max():g}, the largest of'
      f' {np.dtype(dtype)} is {np.finfo(dtype).max:g}. Write float32.'
    )
  return typed


def is_safetensors(path: pathlib.Path) -> bool:
  """Whether a path is a folder, or a file with that content or ending."""
  if path.is_dir():
    return True
  with open(path, 'rb') as f:
    start = f.read(9)
  is_zip = start.startswith(b'PK')
  return start[8:] == b'{' or (path.suffix == '.safetensors' and not is_zip)


def read_safetensors(path: pathlib.Path) -> Arrays:
  """Reads a `.safetensors`, or a folder with one or its shards, as float32."""
  arrays = {}
  for file in _shards(path):
    for name in safetensors_names(file):
      # Opened for each array: mapped pages would stay, and double the memory.
      with _open_safetensors(file) as f:
        _check_type(file, name, f.get_slice(name).get_dtype())
        arrays[name] = _as_float32(f.get_tensor(name))
  return arrays


def _check_type(path: pathlib.Path, name: str, dtype: str) -> None:
  """Raises `errors.UserError` for the numbers of quantised weights."""
  if dtype not in _TYPES:
    raise errors.UserError(
      f'{path} is quantised: its array {name} has the type {dtype}, and its'
      f' scale is not known here. Give the weights before quantisation.'
    )


def safetensors_names(path: pathlib.Path) -> list[str]:
  """Returns the names of the arrays that `read_safetensors` would read."""
  names: list[str] = []
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
      f'{path} cannot be read as a .safetensors: it is {_what_it_is(path)}.'
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
    hint = f' {pickles[0].name} is {_PICKLE}.' if pickles else ''
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
  """Returns what a folder lacks, and which of its files may be meant."""
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
  """Writes float32 arrays for PyTorch's libraries, whole or not at all."""
  # np.ascontiguousarray would make numbers one-dimensional.
  arrays = {n: np.asarray(x, np.float32, order='C') for n, x in arrays.items()}
  with files.replaced_file(storage.local_path(path)) as temporary:
    temporary.touch()
    mode = temporary.stat().st_mode  # save_file makes a private file.
    # transformers refuses files without this format.
    safetensors.numpy.save_file(arrays, temporary, metadata={'format': 'pt'})
    temporary.chmod(mode)


def _what_it_is(path: pathlib.Path) -> str:
  """Returns what kind of file a wrong file is."""
  size = path.stat().st_size
  if not size:
    return 'an empty file'
  with open(path, 'rb') as f:
    start = f.read(64)
  for signature, meaning in _SIGNATURES:
    if start.lstrip().startswith(signature):
      return meaning
  if start.startswith(b'\x80'):
    return _PICKLE
  if start.startswith(b'PK'):
    with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as z:
      if any(name.endswith('data.pkl') for name in z.namelist()):
        return f'a PyTorch file, {_PICKLE}'
    return (
      f'cut or damaged after {size} bytes, or holds objects that are not'
      f' arrays. Fetch it again'
    )
  if start[8:9] == b'{':
    return _what_is_wrong_with_safetensors(path)
  return f'of an unknown kind (it starts with {start[:8]!r})'


def _what_is_wrong_with_safetensors(path: pathlib.Path) -> str:
  """Returns whether a `.safetensors` is cut or damaged, by its header."""
  size = path.stat().st_size
  with open(path, 'rb') as f:
    length = int.from_bytes(f.read(8), 'little')
    header = f.read(min(length, size))
  whole = 8 + length
  if size < whole <= _MAX_SAFETENSORS:
    return f'cut in its header, after {size:,} bytes. Fetch it again'
  with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
    tensors = json.loads(header).items()
    ends = (x['data_offsets'][1] for k, x in tensors if k != '__metadata__')
    whole += max(ends, default=0)
  if size < whole <= _MAX_SAFETENSORS:
    return f'cut, {size:,} of {whole:,} bytes. Fetch it again'
  return f'damaged: its header does not fit its {size:,} bytes. Fetch it again'
