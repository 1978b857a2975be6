"""Host transforms, in NumPy: crop, resize, flip.

At evaluation the pixels are those of the official code, which `decoding` and
`tf.image.resize` give, to 1e-4 of the range [-1, 1].
"""

from collections.abc import Sequence
import dataclasses
from typing import Any

import cv2
import grain
from jaxtyping import Float32, Shaped, UInt8
import numpy as np
import PIL.Image

from vit_jax.data import decoding
from vit_jax.data.augmentation import crops
from vit_jax.data.augmentation import randaugment

# Pillow's filters, by `config.pp.interpolation`.
PILLOW = {
  'bilinear_antialias': PIL.Image.Resampling.BILINEAR,
  'bicubic': PIL.Image.Resampling.BICUBIC,
}

_MOST_TOGETHER = 128  # Channels that OpenCV 5 resizes at once.

Image = decoding.Image
Resized = UInt8[np.ndarray, 'h w C'] | Float32[np.ndarray, 'h w C']


def resize(image: Image, size: crops.Size) -> Float32[np.ndarray, 'h w C']:
  """Resizes as `tf.image.resize` does: bilinear, half-pixel centres, no antialias.

  `size` is (height, width); the result is in [0, 255].
  """
  return Pending(image.astype(np.float32), size).make()


@dataclasses.dataclass(frozen=True)
class Pending:
  """An image that `stack` resizes, and mirrors, in its place in the batch.

  Making it elsewhere and copying it would cost a fifth of the loader's time.
  """

  image: np.ndarray  # uint8, uint16 or float32 [H, W, C].
  size: crops.Size
  flip: bool = False

  @property
  def shape(self) -> tuple[int, int, int]:
    """[height, width, C] of the result."""
    return (*self.size, self.image.shape[-1])

  def make(self) -> np.ndarray:
    """Returns the image outside of a batch."""
    return stack([self])[0]

  def write(self, out: np.ndarray) -> None:
    """Fills `out`: contiguous, with this shape and the dtype of `image`."""
    if self.image.shape[-1] > _MOST_TOGETHER:
      self._write_parts(out)
      return
    cv2.resize(self.image, self.size[::-1], dst=out)
    if self.flip:
      cv2.flip(out, 1, dst=out)  # Slices take thirty times as long.

  def _write_parts(self, out: np.ndarray) -> None:
    for start in range(0, self.image.shape[-1], _MOST_TOGETHER):
      channels = slice(start, start + _MOST_TOGETHER)
      part = np.ascontiguousarray(self.image[..., channels])
      out[..., channels] = dataclasses.replace(self, image=part).make()


def stack(images: Sequence[Any]) -> np.ndarray:
  """Stacks arrays or numbers of one shape and dtype, or `Pending` images.

  Images of several dtypes become float32.
  """
  if len({x.dtype for x in map(_pixels, images)}) > 1:
    images = [_as_float32(x) for x in images]
  if not isinstance(images[0], Pending):
    return np.stack(images)
  batch = np.empty((len(images), *images[0].shape), images[0].image.dtype)
  for image, out in zip(images, batch, strict=True):
    image.write(out)
  return batch


def _pixels(image: Any) -> Any:
  return image.image if isinstance(image, Pending) else image


def _as_float32(image: Any) -> Any:
  """Returns an image, see `eval_image`, as float32 in [0, 255]."""
  pixels = _pixels(image).astype(np.float32)
  if _pixels(image).dtype == np.uint16:
    pixels /= 256
  if isinstance(image, Pending):
    return dataclasses.replace(image, image=pixels)
  return pixels


@dataclasses.dataclass(frozen=True)
class TrainImage(crops.RandomCrop, grain.transforms.RandomMap):
  """Crops, resizes, mirrors and distorts images [H, W, C] at random.

  The result is `Pending`, or with RandAugment an array.
  """

  # (number of operations, magnitude)
  randaugment: tuple[int, int | float] | tuple[()] = ()

  def random_map(self, element: dict, rng: np.random.Generator) -> dict:
    crop = self._crop(element['image'], rng)
    image = Pending(crop, self.size, self.flip and rng.random() < 0.5)
    if not self.randaugment:
      return {**element, 'image': image}
    made = randaugment.randaugment(image.make(), rng, *self.randaugment)
    return {**element, 'image': made}

  def _crop(self, image: Image, rng: np.random.Generator) -> Resized:
    if self.takes_window:
      return self._random_window(image, rng)
    height, width, _ = image.shape
    top, left, h, w = crops.sample_area_crop(
      rng, height, width, self.area, self.ratio
    )
    return image[top : top + h, left : left + w]

  def _random_window(self, image: Image, rng: np.random.Generator) -> Resized:
    image = Pending(image, self.window_source).make()
    if self.pad:
      sides = ((self.pad, self.pad), (self.pad, self.pad), (0, 0))
      image = np.pad(image, sides, crops.PAD_MODES[self.pad_mode])
    top = rng.integers(image.shape[0] - self.size[0] + 1)
    left = rng.integers(image.shape[1] - self.size[1] + 1)
    return image[top : top + self.size[0], left : left + self.size[1]]


def resize_as_pillow(
  image: Image, size: crops.Size, interpolation: str
) -> Resized:
  """Resizes as Pillow does, which averages where it makes an image smaller.

  It takes channel by channel: Pillow has no pictures of other channels than 1, 3 and 4,
  nor colours of float32, which stays float32.
  """
  how = PILLOW[interpolation]
  channels = [
    np.asarray(PIL.Image.fromarray(channel).resize(size[::-1], how))
    for channel in np.moveaxis(image, -1, 0)
  ]
  return np.stack(channels, axis=-1)


def eval_image(
  image: Image,
  size: crops.Size,
  resize: int | crops.Size | None = None,
  interpolation: str = 'bilinear',
) -> Pending | Shaped[np.ndarray, 'h w C']:
  """Resizes uint8 to fixed point, uint16 in steps of 1/256, or as Pillow to uint8.

  float32 stays float32. That is exact enough at half the bytes of float32; rounding
  to uint8, as Pillow does, would change a prediction in a thousand of the official
  models. `resize` is the shorter side, or (height, width), of an image whose centre
  is then cropped to `size`.
  """
  if interpolation in PILLOW:
    height, width, _ = image.shape
    resized = crops.resized_size(height, width, resize or size, interpolation)
    image = resize_as_pillow(image, resized, interpolation)
    return np.ascontiguousarray(image[crops.centre(resized, size)])
  if image.dtype == np.uint8:
    # OpenCV computes in float32 and rounds once, at the end.
    image = np.multiply(image, 256, dtype=np.uint16)
  if resize is None:
    return Pending(image, size)
  height, width, _ = image.shape
  resized = crops.resized_size(height, width, resize)
  return Pending(image, resized).make()[crops.centre(resized, size)]


@dataclasses.dataclass(frozen=True)
class EvalImage(grain.transforms.Map):
  """Applies `eval_image` to images [H, W, C]."""

  size: crops.Size
  resize: int | crops.Size | None = None
  interpolation: str = 'bilinear'

  def map(self, element: dict) -> dict:
    image = eval_image(
      element['image'], self.size, self.resize, self.interpolation
    )
    return {**element, 'image': image}


def lit_image(
  image: decoding.Picture, size: crops.Size, crop: bool = False
) -> UInt8[np.ndarray, 'h w C']:
  """Resizes as the official LiT preprocessing does, which truncates decimals.

  With `crop`, keeps the aspect ratio and crops the centre.
  """
  if crop:
    height, width, _ = image.shape
    scale = max(size[0] / height, size[1] / width)
    resized = round(height * scale), round(width * scale)
    image = resize(image, resized)[crops.centre(resized, size)]
    return image.astype(np.uint8)
  return resize(image, size).astype(np.uint8)


@dataclasses.dataclass(frozen=True)
class LitImage(grain.transforms.Map):
  """Resizes uint8 [H, W, C] as the official LiT code, or as others if they crop.

  Applies `eval_image` if there is a `resize` or another interpolation, else
  `lit_image`.
  """

  size: crops.Size
  crop: bool = False
  resize: int | crops.Size | None = None
  interpolation: str = 'bilinear'

  def map(self, element: dict) -> dict:
    image: Any = element['image']
    is_official = self.resize is None and self.interpolation == 'bilinear'
    if is_official and image.dtype == np.uint8:
      image = lit_image(image, self.size, self.crop)
    else:
      resize = self.resize or (min(self.size) if self.crop else None)
      image = eval_image(image, self.size, resize, self.interpolation)
    return {**element, 'image': image}
