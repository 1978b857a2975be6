"""Crop geometry and sampling, on the host and on the device."""

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key
import numpy as np

_HOST_ATTEMPTS, _DEVICE_ATTEMPTS = 100, 10

Size = tuple[int, int]  # (height, width) in pixels.

RATIO = (0.75, 1.33)  # Width over height, as in TensorFlow.

PAD_MODES: dict[str, Literal['constant', 'reflect']] = {  # NumPy's names.
  'zeros': 'constant',
  'reflect': 'reflect',
}


@dataclasses.dataclass(frozen=True)
class RandomCrop:
  """A crop of random area and shape, resized; with `resize` or `pad` a window.

  For a window, the image is resized to a square of side `resize`, or to `size`, and
  padded.
  """

  size: Size
  # Smallest and largest part of an image.
  area: tuple[float, float] = (0.05, 1.0)
  ratio: tuple[float, float] = RATIO  # Smallest and largest width over height.
  resize: int | None = None
  pad: int = 0  # Pixels on each side.
  pad_mode: str = 'zeros'
  flip: bool = True  # Mirrors half of the images left to right.

  @property
  def takes_window(self) -> bool:
    """Whether to take a window of fixed size, not a crop of random area."""
    return bool(self.resize or self.pad)

  @property
  def window_source(self) -> Size:
    """The size of an image from which windows are taken, without padding."""
    return (self.resize, self.resize) if self.resize else self.size


def sample_area_crop(
  rng: np.random.Generator,
  height: int,
  width: int,
  area: tuple[float, float],
  ratio: tuple[float, float] = RATIO,
) -> tuple[int, int, int, int]:
  """Samples (top, left, height, width) like TensorFlow.

  As in `tf.image.sample_distorted_bounding_box`, the height, not the area, is
  uniform between the smallest and the largest that `area` and the aspect ratio
  allow: (0.05, 1) takes 0.375 of the image on average, torchvision 0.46. If 100
  attempts fail, returns the whole image.
  """
  smallest, largest = area[0] * height * width, area[1] * height * width
  for _ in range(_HOST_ATTEMPTS):
    # One call: four would take as long as the rest of this function.
    u_ratio, u_height, u_top, u_left = rng.random(4).tolist()
    r = ratio[0] + u_ratio * (ratio[1] - ratio[0])
    max_h = min(round((largest / r) ** 0.5), height)
    if round(max_h * r) > width:
      max_h = int((width + 0.5 - 1e-7) / r)
    min_h = min(round((smallest / r) ** 0.5), max_h)
    h = min_h + int(u_height * (max_h + 1 - min_h))
    # Rounding may leave the range by a pixel; one step may correct it.
    if h * round(h * r) < smallest:
      h += 1
    if h * round(h * r) > largest:
      h -= 1
    w = round(h * r)
    if 0 < h <= height and 0 < w <= width and smallest <= h * w <= largest:
      return int(u_top * (height - h)), int(u_left * (width - w)), h, w
  return 0, 0, height, width


def sample_area_crops(
  key: Key[Array, ''],
  num: int,
  height: int,
  width: int,
  area: tuple[float, float],
  ratio: tuple[float, float] = RATIO,
) -> Int[Array, 'B 4']:
  """Samples `num` crops like `sample_area_crop`, with 10 attempts; jittable."""
  ratio_key, height_key, top_key, left_key = jax.random.split(key, 4)
  smallest, largest = area[0] * height * width, area[1] * height * width
  r = jax.random.uniform(
    ratio_key, (num, _DEVICE_ATTEMPTS), minval=ratio[0], maxval=ratio[1]
  )
  max_h = jnp.minimum(jnp.round(jnp.sqrt(largest / r)), height)
  too_wide = jnp.round(max_h * r) > width
  max_h = jnp.where(too_wide, jnp.floor((width + 0.5) / r), max_h)
  min_h = jnp.minimum(jnp.round(jnp.sqrt(smallest / r)), max_h)
  span = max_h - min_h + 1
  h = min_h + jnp.floor(jax.random.uniform(height_key, span.shape) * span)
  h = h + (h * jnp.round(h * r) < smallest)
  h = h - (h * jnp.round(h * r) > largest)
  w = jnp.round(h * r)
  fits = (h > 0) & (w > 0) & (h <= height) & (w <= width)
  fits &= (h * w >= smallest) & (h * w <= largest)

  first = jnp.argmax(fits, axis=1, keepdims=True)
  found = jnp.any(fits, axis=1)
  h = jnp.where(found, jnp.take_along_axis(h, first, 1)[:, 0], height)
  w = jnp.where(found, jnp.take_along_axis(w, first, 1)[:, 0], width)
  top = jnp.floor(jax.random.uniform(top_key, (num,)) * (height - h))
  left = jnp.floor(jax.random.uniform(left_key, (num,)) * (width - w))
  return jnp.stack([top, left, h, w], axis=1).astype(jnp.int32)


def resized_size(
  height: int, width: int, resize: int | Size, interpolation: str = 'bilinear'
) -> Size:
  """Returns a size with the shorter side `resize`, or `resize` itself.

  The longer side is rounded; for filters of Pillow down, as torchvision does.
  """
  if not isinstance(resize, int):
    return resize
  shorter = min(height, width)
  if interpolation != 'bilinear':
    return resize * height // shorter, resize * width // shorter
  scale = resize / shorter
  return round(height * scale), round(width * scale)


def centre(resized: Size, size: Size) -> tuple[slice, slice]:
  """Returns the rows and columns of a window in the middle of an image."""
  top, left = ((resized[i] - size[i]) // 2 for i in (0, 1))
  return slice(top, top + size[0]), slice(left, left + size[1])
