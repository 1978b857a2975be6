"""Host transforms, in NumPy: decode, crop, resize, flip.

At evaluation the pixels are those of the official code, `tf.image.decode_jpeg`
and `tf.image.resize`, to 1e-4 of the range [-1, 1].
"""

from collections.abc import Sequence
import dataclasses
import functools

import cv2
import grain
from jaxtyping import Float32, UInt8
import numpy as np
import simplejpeg

Image = UInt8[np.ndarray, 'H W C']

_ATTEMPTS = 100
_RATIO = (0.75, 1.33)  # Width over height, as TensorFlow has it.

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
  flags, colorspace = _DECODERS[channels]
  if not exif and _is_jpeg(data):
    return _decode_jpeg(data, colorspace)
  if not exif:
    flags |= cv2.IMREAD_IGNORE_ORIENTATION
  image = None
  if data:
    try:
      image = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error as e:
      raise ValueError(str(e).strip()) from e
  if image is None:
    raise ValueError('no JPEG, PNG, WebP or BMP image')
  return image.reshape(*image.shape[:2], channels)


def _is_jpeg(data: bytes) -> bool:
  if data[:2] != b'\xff\xd8':
    return False
  # Of CMYK simplejpeg makes no RGB, OpenCV does.
  return simplejpeg.decode_jpeg_header(data)[2] != 'CMYK'


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


def sample_area_crop(
  rng: np.random.Generator,
  height: int,
  width: int,
  area: tuple[float, float],
) -> tuple[int, int, int, int]:
  """Samples a crop as `tf.image.sample_distorted_bounding_box` does.

  Its height, not its area, is uniform between the smallest and the largest that
  `area` and the aspect ratio allow: with (0.05, 1) it takes 0.375 of the image
  on average, torchvision's way 0.46.

  Returns:
    (top, left, height, width); the whole image if 100 attempts fail.
  """
  smallest, largest = area[0] * height * width, area[1] * height * width
  for _ in range(_ATTEMPTS):
    # One call for all: four would take as long as the rest of this function.
    u_ratio, u_height, u_top, u_left = rng.random(4).tolist()
    ratio = _RATIO[0] + u_ratio * (_RATIO[1] - _RATIO[0])
    max_h = min(round((largest / ratio) ** 0.5), height)
    if round(max_h * ratio) > width:
      max_h = int((width + 0.5 - 1e-7) / ratio)
    min_h = min(round((smallest / ratio) ** 0.5), max_h)
    h = min_h + int(u_height * (max_h + 1 - min_h))
    # Rounding may leave the range by a pixel; one step may mend it.
    if h * round(h * ratio) < smallest:
      h += 1
    if h * round(h * ratio) > largest:
      h -= 1
    w = round(h * ratio)
    if 0 < h <= height and 0 < w <= width and smallest <= h * w <= largest:
      return int(u_top * (height - h)), int(u_left * (width - w)), h, w
  return 0, 0, height, width


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
  """Crops, resizes to `size` and mirrors uint8 [H, W, C], at random.

  The image becomes a `Pending` one.

  Attributes:
    size: (height, width) of the result.
    area: smallest and largest part of the image that a crop takes.
    resize: if given, resizes to this square and takes a random window instead.
    flip: whether to mirror half of the images.
  """

  size: tuple[int, int]
  area: tuple[float, float] = (0.05, 1.0)
  resize: int | None = None
  flip: bool = True

  def random_map(self, element: dict, rng: np.random.Generator) -> dict:
    image, flip = element['image'], False
    if self.resize:
      image = cv2.resize(image, (self.resize, self.resize))
      image = image.reshape(*image.shape[:2], element['image'].shape[-1])
      top = rng.integers(self.resize - self.size[0] + 1)
      left = rng.integers(self.resize - self.size[1] + 1)
      image = image[top : top + self.size[0], left : left + self.size[1]]
    else:
      top, left, h, w = sample_area_crop(rng, *image.shape[:2], self.area)
      image = image[top : top + h, left : left + w]
    if self.flip:
      flip = rng.random() < 0.5
    return {**element, 'image': Pending(image, self.size, flip)}


def eval_image(image: Image, size: tuple[int, int]) -> Pending:
  """Resizes to fixed point, uint16 in steps of 1/256, as `stack` makes it.

  That is exact enough at half the bytes; rounding to uint8 would change a
  prediction in a thousand.
  """
  # OpenCV computes in float32 and rounds once, at the end.
  return Pending(np.multiply(image, 256, dtype=np.uint16), size)


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

  def map(self, element: dict) -> dict:
    return {**element, 'image': eval_image(element['image'], self.size)}
