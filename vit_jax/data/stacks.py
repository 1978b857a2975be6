"""Stacks: images of any number of channels, in .npy files, TIFFs and arrays.

Satellites and microscopes write them. Their values keep their precision.
"""

from collections.abc import Iterator, Sequence
import contextlib
import functools
import importlib.util
import io
import logging
import math
import threading

import cv2
from jaxtyping import Float32, UInt8
import numpy as np

from vit_jax.runtime import errors

# uint8, or float32 in the same units: 255 is 1.
Pixels = UInt8[np.ndarray, 'H W C'] | Float32[np.ndarray, 'H W C']

DTYPES = ('uint8', 'uint16', 'float32')

# By the tag of a TIFF: how often it is turned to the left, after a transposition.
ORIENTATION = 274
_TURNS = {
  1: (0, False), 2: (-1, True), 3: (2, False), 4: (1, True),
  5: (0, True), 6: (-1, False), 7: (2, True), 8: (1, False),
}  # fmt: skip

_ROTATIONS = {
  1: cv2.ROTATE_90_COUNTERCLOCKWISE,
  2: cv2.ROTATE_180,
  -1: cv2.ROTATE_90_CLOCKWISE,
}

_NPY = b'\x93NUMPY'
_HEADERS = {
  (1, 0): np.lib.format.read_array_header_1_0,
  (2, 0): np.lib.format.read_array_header_2_0,
}
_PARSING = threading.Lock()
_LEAST_SIDE = 16  # Smallest side of an image that may have its channels first.
_MOST_VALUES = 1 << 29  # As many as the largest pictures have.


def is_npy(data: bytes) -> bool:
  """Whether a file is one of `np.save`."""
  return data.startswith(_NPY)


def as_image(array: np.ndarray) -> np.ndarray:
  """Returns an array as [H, W, C]; raises ValueError unless it is an image."""
  dtype = array.dtype.newbyteorder('=')
  if dtype.name not in DTYPES or array.ndim not in (2, 3) or 0 in array.shape:
    raise ValueError(
      f'it is {dtype} of shape {array.shape}: it must be'
      f' {", ".join(DTYPES[:-1])} or {DTYPES[-1]}, [H, W] or [H, W, C]'
    )
  return array.astype(dtype, copy=False).reshape(*array.shape[:2], -1)


def check_channels_last(
  shape: Sequence[int], channels: int | None = None
) -> None:
  """Raises ValueError if [H, W, C] looks like [C, H, W] of colours, as torch has it.

  `channels` is how many it must have, if that is known.
  """
  if channels == shape[-1] or len(shape) != 3 or shape[0] != 3:
    return
  if min(shape[1:]) >= _LEAST_SIDE:
    raise ValueError(
      f'it has the shape {tuple(shape)}, but channels must come last:'
      f' np.moveaxis(x, 0, -1) puts them there'
    )


def as_pixels(array: np.ndarray, channels: int | None = None) -> Pixels:
  """Returns an array [H, W] or [H, W, C] as pixels.

  uint8 stays as it is; uint16 is divided by 257, float32 multiplied by 255, as
  65535 and 1.0 are 255. Values of float32 may lie outside of [0, 1].

  Args:
    array: the image.
    channels: how many it must have; None for any number.

  Raises:
    ValueError: if it is another array, or has values that are not finite.
  """
  image = as_image(array)
  check_channels_last(array.shape, channels)
  have = image.shape[-1]
  if channels and have != channels:
    is_turned = array.ndim == 3 and array.shape[0] == channels
    hint = ': np.moveaxis(x, 0, -1) puts channels last' if is_turned else ''
    raise ValueError(f'it has {have} channels, must have {channels}{hint}')
  if image.dtype == np.uint8:
    return np.ascontiguousarray(image)
  if image.dtype == np.uint16:
    return np.divide(image, 257, dtype=np.float32, order='C')
  if not np.isfinite(image).all():
    raise ValueError('it has values that are NaN or infinite')
  return np.multiply(image, 255, dtype=np.float32, order='C')


def read_npy(data: bytes) -> np.ndarray:
  """Returns the array in a file of `np.save`; raises ValueError at others."""
  version = data[len(_NPY)] if len(data) > len(_NPY) else 0
  digits = {1: 2, 2: 4}.get(version, 0)  # Bytes of the length of the header.
  start = len(_NPY) + 2 + digits
  start += int.from_bytes(data[start - digits : start], 'little')
  shape, is_fortran, dtype = _read_header(data[:start])
  if dtype.hasobject:
    raise ValueError('an array of Python objects, which are not read')
  # Checked before memory is taken: a header can claim any size.
  want, have = math.prod(shape) * dtype.itemsize, len(data) - start
  if want != have:
    raise ValueError(
      f'a damaged .npy file: {have} bytes, its header says {want}'
    )
  array = np.frombuffer(data, dtype, offset=start)
  return array.reshape(shape, order='F' if is_fortran else 'C')


@functools.lru_cache(1000)  # Few files differ in shape.
def _read_header(data: bytes) -> tuple[tuple[int, ...], bool, np.dtype]:
  """Returns shape, whether the first index is the fastest, and dtype."""
  file = io.BytesIO(data)
  try:
    # NumPy parses Python, which threads of Python 3.11 cannot do at once.
    with _PARSING:
      return _HEADERS[np.lib.format.read_magic(file)](file)
  except Exception as e:  # Those of Python's tokeniser and parser too.
    raise ValueError('a damaged .npy file: its header cannot be read') from e


def can_read_tiffs() -> bool:
  """Whether the package that `read_tiff` needs is installed."""
  return importlib.util.find_spec('tifffile') is not None


def read_tiff(data: bytes, what: str) -> np.ndarray:
  """Returns the pages or samples of a TIFF as channels, [H, W, C], upright.

  Pillow reads neither several samples of 16 bits nor more than four.

  Args:
    data: the file.
    what: what it is, for a message.

  Raises:
    ValueError: if it is damaged, or its pages differ in size or kind.
  """
  try:
    import tifffile
  except ImportError as e:
    raise ValueError(f"{what}, which needs pip install 'vit_jax[tiff]'") from e
  logging.getLogger('tifffile').setLevel(logging.CRITICAL)  # Errors are raised.
  with _naming_damage():
    found = tifffile.TiffFile(io.BytesIO(data)).series
  if len(found) != 1:
    raise ValueError(f'a TIFF with {len(found)} kinds of pages, must have one')
  series = found[0]
  if not {'Y', 'X'} <= {*series.axes}:
    raise ValueError(f'a TIFF with the axes {series.axes}, must have Y and X')
  if math.prod(series.shape) > _MOST_VALUES:
    raise ValueError(
      f'{" x ".join(map(str, series.shape))} values, more than the'
      f' {_MOST_VALUES} that are read'
    )
  places = series.axes.index('Y'), series.axes.index('X')
  with _naming_damage():
    array = np.moveaxis(series.asarray(), places, (0, 1))
    tag = series.keyframe.tags.valueof(ORIENTATION, 1)
  return turned(array.reshape(*array.shape[:2], -1), tag)


def turned(array: np.ndarray, tag: int) -> np.ndarray:
  """Returns an image [H, W, C] upright, by the orientation of EXIF or a TIFF."""
  turns, is_transposed = _TURNS.get(tag, _TURNS[1])
  return np.rot90(array.swapaxes(0, 1) if is_transposed else array, turns)


def turned_picture(
  picture: UInt8[np.ndarray, 'H W C'], tag: int
) -> UInt8[np.ndarray, 'h w C']:
  """Returns what `turned` does, contiguous, five times as fast."""
  turns, is_transposed = _TURNS.get(tag, _TURNS[1])
  upright = cv2.transpose(picture) if is_transposed else picture
  if turns:
    upright = cv2.rotate(upright, _ROTATIONS[turns])
  return upright.reshape(*upright.shape[:2], picture.shape[-1])


@contextlib.contextmanager
def _naming_damage() -> Iterator[None]:
  try:
    yield
  except Exception as e:  # tifffile raises errors of many kinds.
    raise ValueError(f'a damaged TIFF: {errors.first_line(e)}') from e
