"""Images given by users: files, folders, addresses, arrays, Pillow pictures."""

from collections.abc import Sequence
import functools
import glob
import io
import os
import sys
from typing import Any

import cv2
import numpy as np

from vit_jax.data import image_files
from vit_jax.data import stacks
from vit_jax.runtime import download
from vit_jax.runtime import errors

STDIN = '-'

_MAX_BYTES = 1 << 28  # Limit for downloads and standard input.

# Pillow's modes that PNG has.
_PNG_MODES = ('1', 'L', 'LA', 'P', 'RGB', 'RGBA')


def find(arguments: Sequence[str]) -> list[str]:
  """Returns the names of images, in the order given.

  Each argument is a file; a folder, searched with all folders in it; a pattern,
  'photos/**/*.jpg'; an address, 'https://...'; or '-', an image from standard
  input. Raises `errors.UserError` if nothing is there.
  """
  if not arguments:
    raise errors.UserError('Name at least one image or folder.')
  names = []
  for argument in arguments:
    if argument == STDIN or download.is_url(argument):
      found = [argument]
    elif os.path.isdir(argument):
      found = _in_folder(argument)
    elif os.path.exists(argument):  # Brackets may be part of a name.
      found = [argument]
    else:
      matches = glob.glob(argument, recursive=True)
      found = sorted(filter(os.path.isfile, matches))
    if not found:
      raise errors.UserError(
        f'{argument} cannot be read: there is no such file, folder or'
        f' pattern of files.'
      )
    names += found
  return names


def _in_folder(folder: str) -> list[str]:
  found = image_files.find(folder)
  if not found.images:
    rest = image_files.count_text(found.unread)
    raise errors.UserError(
      f'{folder} has no images ({", ".join(image_files.SUFFIXES)})'
      f'{f", but {rest}" if rest else ""}.'
    )
  image_files.warn_of_unread(found.unread, folder)
  return found.images


class InputSource:
  """A source, see `sources`, of images by name, arrays or Pillow pictures.

  Arrays are converted to `channels`, see `stacks.as_image`. There are no labels.
  """

  def __init__(self, images: Sequence[Any], channels: int):
    self._images, self._channels = images, channels
    self.class_names: Sequence[str] = ()
    self.image_shape: tuple[int, ...] | None = None

  def __len__(self) -> int:
    return len(self._images)

  def __getitem__(self, index: int) -> dict[str, Any]:
    image = self._images[index]
    if isinstance(image, str | os.PathLike):
      name = os.fspath(image)
      return {'image': read(name), 'label': 0, 'name': name}
    name = f'image {index}'
    if hasattr(image, 'getexif'):
      image = _as_png(image, name)
    else:
      image = _as_array(image, self._channels, name)
    return {'image': image, 'label': 0, 'name': name}


def read(name: str) -> bytes:
  """Returns the bytes of an image: a file, an address or '-'.

  Raises:
    OSError: if a file cannot be read.
    errors.UserError: if an address cannot be read.
  """
  if name == STDIN:
    return _read_stdin()
  if download.is_url(name):
    try:
      return download.read(name, _MAX_BYTES)
    except errors.UserError as e:
      e.filename = name
      raise
  return image_files.read_bytes(name)


@functools.cache  # It can be read only once.
def _read_stdin() -> bytes:
  return sys.stdin.buffer.read(_MAX_BYTES)


def _as_png(picture: Any, name: str) -> bytes:
  """Returns a Pillow picture as a PNG file, to be decoded like all files."""
  if picture.mode in ('I', 'F'):
    raise errors.UserError(
      f"{name} has Pillow's mode {picture.mode}, whose values have no fixed"
      f' range. Give a picture of mode L, RGB or I;16, or an array of uint8.'
    )
  try:
    # Pictures that Pillow made, such as rotated ones, only inherit this tag.
    exif = picture.getexif() if picture.format else {}
    if picture.mode.startswith('I;16'):
      picture = picture.convert('I').convert('I;16')
    elif picture.mode not in _PNG_MODES:
      picture = picture.convert('LA' if picture.mode == 'La' else 'RGB')
    file = io.BytesIO()
    picture.save(
      file,
      'PNG',
      compress_level=0,
      exif=exif if exif.get(stacks.ORIENTATION, 1) != 1 else None,
      icc_profile=None,
      transparency=None,
    )
  except (OSError, SyntaxError, ValueError) as e:
    raise errors.UserError(
      f"{name}, of Pillow's mode {picture.mode}, cannot be converted: {e}."
    ) from e
  return file.getvalue()


def _as_array(image: Any, channels: int, name: str) -> np.ndarray:
  """Returns an image [H, W, channels] without transparency."""
  try:
    array = stacks.as_image(np.asarray(image))
  except ValueError as e:
    text = str(e).removeprefix('it ')
    raise errors.UserError(f'{name} {text}.') from e
  have = array.shape[-1]
  if have == 4 and channels == 3:
    return array[..., :3]
  if have == 1 and channels == 3:
    return array.repeat(3, axis=-1)
  if have == 3 and channels == 1:
    array = np.ascontiguousarray(array)
    return cv2.cvtColor(array, cv2.COLOR_RGB2GRAY)[..., None]
  if have != channels:
    raise errors.UserError(
      f'{name} has {have} channels, the model takes images with {channels}.'
    )
  return array


def as_sequence(images: Any) -> Sequence[Any]:
  """Returns a sequence of images for one image, many, or an array [N, H, W, C]."""
  is_one = (
    isinstance(images, str | os.PathLike)
    or hasattr(images, 'convert')
    or (hasattr(images, 'ndim') and images.ndim < 4)
  )
  return [images] if is_one else list(images)
