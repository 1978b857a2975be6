"""Host transforms, in NumPy: decode, crop, resize, flip.

At evaluation the pixels are those of the official code, `tf.image.decode_jpeg`
and `tf.image.resize`, to 1e-4 of the range [-1, 1].
"""

from collections.abc import Sequence
import dataclasses
import functools
import struct

import cv2
import grain
from jaxtyping import Float32, UInt8, UInt16
import numpy as np
import simplejpeg

from vit_jax.data import randaugment
from vit_jax.data import windows

Image = UInt8[np.ndarray, 'H W C']

_MAX_PIXELS = 1 << 27  # Of ImageNet's images the largest has half as many.

# By channel count: how OpenCV and simplejpeg call it.
_DECODERS = {
  1: (cv2.IMREAD_GRAYSCALE, 'GRAY'),
  3: (cv2.IMREAD_COLOR_RGB, 'RGB'),
}


def decode(data: bytes, *, channels: int = 3, exif: bool = False) -> Image:
  """Decodes a JPEG, PNG, WebP or BMP file to uint8 [H, W, channels].

  Greyscale, CMYK, palette and 16-bit files are converted; transparency is left
  out. JPEG gives the pixels of `tf.image.decode_jpeg` bit for bit.

  Args:
    data: the bytes of the file.
    channels: 1 or 3 (RGB).
    exif: whether to turn the image upright by its EXIF tag.

  Raises:
    ValueError: if these bytes are no image.
  """
  if channels not in _DECODERS:
    raise ValueError(f'Files decode to 1 or 3 channels, not {channels}.')
  _silence()
  flags, colorspace = _DECODERS[channels]
  is_jpeg = data.startswith(b'\xff\xd8')
  header = simplejpeg.decode_jpeg_header(data) if is_jpeg else None
  height, width = header[:2] if header else _size(data)
  if height * width > _MAX_PIXELS:
    raise ValueError(
      f'{height} x {width} pixels, more than the {_MAX_PIXELS} that are read'
    )
  # Of CMYK simplejpeg makes no RGB, OpenCV does.
  if not exif and header and header[2] != 'CMYK':
    return _decode_jpeg(data, colorspace)
  if not exif:
    flags |= cv2.IMREAD_IGNORE_ORIENTATION
  try:
    image = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
  except cv2.error as e:
    raise ValueError(str(e).strip()) from e
  if image is None:
    raise ValueError('a damaged image')
  return image.reshape(*image.shape[:2], channels)


@functools.cache
def _silence() -> None:
  """Keeps OpenCV from printing what it raises, or returns, besides."""
  logs = getattr(cv2.utils, 'logging', cv2)  # It moved in OpenCV 5.
  logs.setLogLevel(0)


def _size(data: bytes) -> tuple[int, int]:
  """Returns (height, width) as the header of a PNG, BMP or WebP says.

  OpenCV would take memory for a billion pixels, which a kilobyte can claim. A WebP
  cannot claim so many, and has no simple header: (0, 0).
  """
  try:
    if data.startswith(b'\x89PNG\r\n\x1a\n'):
      width, height = struct.unpack_from('>II', data, 16)
      return height, width
    if data.startswith(b'BM'):
      kind = '<HH' if data[14:18] == b'\x0c\0\0\0' else '<ii'
      width, height = struct.unpack_from(kind, data, 18)
      return abs(height), abs(width)
  except struct.error as e:
    raise ValueError('a cut image') from e
  if data[:4] == b'RIFF' and data[8:12] == b'WEBP':
    return 0, 0
  raise ValueError('no JPEG, PNG, WebP or BMP image')


def _decode_jpeg(data: bytes, colorspace: str) -> Image:
  decode = functools.partial(
    simplejpeg.decode_jpeg,
    data,
    colorspace=colorspace,
    fastdct=True,
    fastupsample=False,
  )
  try:
    return decode()
  except ValueError as e:
    # TensorFlow only warns of these; cut files it refuses too.
    if 'extraneous bytes' not in str(e):
      raise
    return decode(strict=False)


def resize(image: Image, size: tuple[int, int]) -> Float32[np.ndarray, 'h w C']:
  """Resizes as `tf.image.resize`: bilinear, half-pixel centres, no antialias.

  Args:
    image: uint8 [H, W, C].
    size: (height, width) in pixels.

  Returns:
    float32 [height, width, C] in [0, 255].
  """
  resized = cv2.resize(
    image.astype(np.float32), size[::-1], interpolation=cv2.INTER_LINEAR
  )
  return resized.reshape(*size, image.shape[-1])


@dataclasses.dataclass(frozen=True)
class Pending:
  """An image that is resized, and mirrored, where it stands in its batch.

  Making it elsewhere and copying it there costs a fifth of the loader's time.

  Attributes:
    image: uint8 or uint16 [H, W, C].
    size: (height, width) wanted.
    flip: whether to mirror it left to right.
  """

  image: np.ndarray
  size: tuple[int, int]
  flip: bool = False

  @property
  def shape(self) -> tuple[int, int, int]:
    """(height, width, channels) once it is made."""
    return (*self.size, self.image.shape[-1])

  def make(self) -> np.ndarray:
    """Returns the image, made by itself."""
    return stack([self])[0]

  def write(self, out: np.ndarray) -> None:
    """Fills `out`, contiguous, of this shape and of the dtype of `image`."""
    cv2.resize(self.image, self.size[::-1], dst=out)
    if self.flip:
      cv2.flip(out, 1, dst=out)  # By slices it takes thirty times as long.


def stack(images: Sequence[np.ndarray | np.generic | Pending]) -> np.ndarray:
  """Returns [B, ...] of images of one shape and dtype, or of other values."""
  if not isinstance(images[0], Pending):
    return np.stack(images)
  batch = np.empty((len(images), *images[0].shape), images[0].image.dtype)
  for image, out in zip(images, batch, strict=True):
    image.write(out)
  return batch


@dataclasses.dataclass(frozen=True)
class TrainImage(grain.transforms.RandomMap):
  """Crops, resizes to `size`, mirrors and distorts uint8 [H, W, C], at random.

  The image becomes a `Pending` one, but for RandAugment.

  Attributes:
    size: (height, width) of the result.
    area: smallest and largest part of the image that a crop takes.
    ratio: smallest and largest width over height of that crop.
    resize: if given, resizes to this square and takes a random window instead.
    pad: pixels added on each side before that window is taken; without `resize`
      of the image at `size`.
    pad_mode: 'zeros' (black) or 'reflect'.
    flip: whether to mirror half of the images.
    randaugment: number of operations and magnitude; () for none.
  """

  size: tuple[int, int]
  area: tuple[float, float] = (0.05, 1.0)
  ratio: tuple[float, float] = windows.RATIO
  resize: int | None = None
  pad: int = 0
  pad_mode: str = 'zeros'
  flip: bool = True
  randaugment: Sequence[int | float] = ()

  def random_map(self, element: dict, rng: np.random.Generator) -> dict:
    image, flip = element['image'], False
    if self.resize or self.pad:
      image = self._random_window(image, rng)
    else:
      top, left, h, w = windows.sample_area_crop(
        rng, *image.shape[:2], self.area, self.ratio
      )
      image = image[top : top + h, left : left + w]
    if self.flip:
      flip = rng.random() < 0.5
    image = Pending(image, self.size, flip)
    if self.randaugment:
      image = randaugment.randaugment(image.make(), rng, *self.randaugment)
    return {**element, 'image': image}

  def _random_window(
    self, image: Image, rng: np.random.Generator
  ) -> UInt8[np.ndarray, 'h w C']:
    size = (self.resize, self.resize) if self.resize else self.size
    image = Pending(image, size).make()
    if self.pad:
      sides = ((self.pad, self.pad), (self.pad, self.pad), (0, 0))
      image = np.pad(image, sides, windows.PAD_MODES[self.pad_mode])
    top = rng.integers(image.shape[0] - self.size[0] + 1)
    left = rng.integers(image.shape[1] - self.size[1] + 1)
    return image[top : top + self.size[0], left : left + self.size[1]]


def eval_image(
  image: Image,
  size: tuple[int, int],
  resize: int | tuple[int, int] | None = None,
) -> Pending | UInt16[np.ndarray, 'h w C']:
  """Resizes to fixed point, uint16 in steps of 1/256, as `stack` makes it.

  That is exact enough at half the bytes; rounding to uint8 would change a
  prediction in a thousand.

  Args:
    image: uint8 [H, W, C].
    size: (height, width) of the result.
    resize: if given, resizes the shorter side to it, or the image to this
      (height, width), and takes the middle.
  """
  # OpenCV computes in float32 and rounds once, at the end.
  image = np.multiply(image, 256, dtype=np.uint16)
  if resize is None:
    return Pending(image, size)
  resized = windows.resized_size(*image.shape[:2], resize)
  return windows.centre(Pending(image, resized).make(), size)


def lit_image(
  image: Image, size: tuple[int, int], crop: bool = False
) -> UInt8[np.ndarray, 'h w C']:
  """Resizes as the official LiT preprocessing does, which cuts off decimals.

  Args:
    image: uint8 [H, W, C].
    size: (height, width) in pixels.
    crop: whether to keep the aspect ratio and take the centre.

  Returns:
    uint8 [height, width, C].
  """
  if not crop:
    return resize(image, size).astype(np.uint8)
  height, width = image.shape[:2]
  scale = max(size[0] / height, size[1] / width)
  image = resize(image, (round(height * scale), round(width * scale)))
  top, left = ((image.shape[i] - size[i]) // 2 for i in (0, 1))
  image = image[top : top + size[0], left : left + size[1]]
  return image.astype(np.uint8)


@dataclasses.dataclass(frozen=True)
class EvalImage(grain.transforms.Map):
  """Applies `eval_image` to uint8 [H, W, C]."""

  size: tuple[int, int]
  resize: int | tuple[int, int] | None = None

  def map(self, element: dict) -> dict:
    image = eval_image(element['image'], self.size, self.resize)
    return {**element, 'image': image}
