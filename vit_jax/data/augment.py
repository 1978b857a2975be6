"""Device transforms, jittable: what the host's do, for small images of one size.

CIFAR-sized images travel as they are, uint8, and are cropped, resized, mirrored
and normalised here, inside the step; photographs come resized from the host and
are only normalised.
"""

from collections.abc import Sequence
import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int, Key, UInt8
import numpy as np

_ATTEMPTS = 10
_RATIO = (0.75, 1.33)  # Width over height, as TensorFlow has it.

Images = Float[Array, 'B h w C']
Raw = UInt8[ArrayLike, 'B H W C']


def normalize(
  images: ArrayLike,
  mean: Sequence[float] = (0.5,),
  std: Sequence[float] = (0.5,),
) -> Images:
  """Maps uint8, or uint16 in steps of 1/256, to float32.

  Args:
    images: [B, H, W, C].
    mean: of pixels in [0, 1], one for all channels or for each. The official
      0.5 and 0.5 give [-1, 1].
    std: likewise.
  """
  x = jnp.asarray(images, jnp.float32)
  if images.dtype == jnp.uint16:
    x = x / 256
  mean, std = (255 * np.asarray(v, np.float32) for v in (mean, std))
  return (x - mean) / std


def sample_area_crops(
  key: Key[Array, ''],
  num: int,
  height: int,
  width: int,
  area: tuple[float, float],
) -> Int[Array, 'B 4']:
  """Samples (top, left, height, width) as `transforms.sample_area_crop` does.

  The whole image where all of 10 attempts fail.
  """
  ratio_key, height_key, top_key, left_key = jax.random.split(key, 4)
  smallest, largest = area[0] * height * width, area[1] * height * width
  ratio = jax.random.uniform(
    ratio_key, (num, _ATTEMPTS), minval=_RATIO[0], maxval=_RATIO[1]
  )
  max_h = jnp.minimum(jnp.round(jnp.sqrt(largest / ratio)), height)
  too_wide = jnp.round(max_h * ratio) > width
  max_h = jnp.where(too_wide, jnp.floor((width + 0.5) / ratio), max_h)
  min_h = jnp.minimum(jnp.round(jnp.sqrt(smallest / ratio)), max_h)
  span = max_h - min_h + 1
  h = min_h + jnp.floor(jax.random.uniform(height_key, span.shape) * span)
  h = h + (h * jnp.round(h * ratio) < smallest)
  h = h - (h * jnp.round(h * ratio) > largest)
  w = jnp.round(h * ratio)
  fits = (h > 0) & (w > 0) & (h <= height) & (w <= width)
  fits &= (h * w >= smallest) & (h * w <= largest)

  first = jnp.argmax(fits, axis=1, keepdims=True)
  found = jnp.any(fits, axis=1)
  h = jnp.where(found, jnp.take_along_axis(h, first, 1)[:, 0], height)
  w = jnp.where(found, jnp.take_along_axis(w, first, 1)[:, 0], width)
  top = jnp.floor(jax.random.uniform(top_key, (num,)) * (height - h))
  left = jnp.floor(jax.random.uniform(left_key, (num,)) * (width - w))
  return jnp.stack([top, left, h, w], axis=1).astype(jnp.int32)


def crop_and_resize(
  images: Raw,
  crops: Int[ArrayLike, 'B 4'],
  size: tuple[int, int],
) -> Images:
  """Resizes crops (top, left, height, width) as `tf.image.resize` would.

  Two matrix products with interpolation weights that stay within the crop;
  `jax.image.scale_and_translate` would read pixels outside of it.

  Returns:
    float32 [B, *size, C] in [0, 255].
  """
  rows = _weights(crops[:, 0], crops[:, 2], images.shape[1], size[0])
  columns = _weights(crops[:, 1], crops[:, 3], images.shape[2], size[1])
  x = jnp.asarray(images, jnp.float32)
  x = jnp.einsum('bhH,bHWC->bhWC', rows, x, precision='highest')
  return jnp.einsum('bwW,bhWC->bhwC', columns, x, precision='highest')


def _weights(
  start: Int[Array, ' B'], length: Int[Array, ' B'], old: int, new: int
) -> Float[Array, 'B new old']:
  centres = (jnp.arange(new) + 0.5) * length[:, None] / new - 0.5
  centres = jnp.clip(centres, 0, length[:, None] - 1) + start[:, None]
  distance = jnp.abs(centres[..., None] - jnp.arange(old))
  return jnp.maximum(0.0, 1.0 - distance)


def resize(images: Raw, size: tuple[int, int]) -> Images:
  """Resizes whole images as `tf.image.resize` would; float32 in [0, 255]."""
  if images.shape[1:3] == tuple(size):
    return jnp.asarray(images, jnp.float32)
  crop = jnp.array([0, 0, *images.shape[1:3]], jnp.int32)
  return crop_and_resize(images, jnp.tile(crop, (len(images), 1)), size)


def random_flip(key: Key[Array, ''], images: Images) -> Images:
  """Mirrors half of the images left to right."""
  mirrored = jax.random.bernoulli(key, shape=(len(images), 1, 1, 1))
  return jnp.where(mirrored, images[:, :, ::-1], images)


@dataclasses.dataclass(frozen=True)
class Preprocess:
  """From what the host sends to the model's input, float32 [B, *size, C].

  Attributes:
    size: (height, width) of the model's input.
    area, resize, flip: as in `transforms.TrainImage`.
    on_device: whether the images come raw, to be cropped and resized here.
    mean, std: as in `normalize`.
  """

  size: tuple[int, int]
  area: tuple[float, float] = (0.05, 1.0)
  resize: int | None = None
  flip: bool = True
  on_device: bool = True
  mean: Sequence[float] = (0.5,)
  std: Sequence[float] = (0.5,)

  def train(self, key: Key[Array, ''], images: ArrayLike) -> Images:
    """Crops and mirrors at random, then normalises."""
    if not self.on_device:
      return self._normalize(images)
    crop_key, flip_key = jax.random.split(key)
    if self.resize:
      x = self._random_window(crop_key, images, self.resize)
    else:
      crops = sample_area_crops(crop_key, *images.shape[:3], self.area)
      x = crop_and_resize(images, crops, self.size)
    return self._normalize(random_flip(flip_key, x) if self.flip else x)

  def eval(self, images: ArrayLike) -> Images:
    """Resizes whole images and normalises."""
    x = resize(images, self.size) if self.on_device else images
    return self._normalize(x)

  def _normalize(self, images: ArrayLike) -> Images:
    return normalize(images, self.mean, self.std)

  def _random_window(
    self, key: Key[Array, ''], images: Raw, side: int
  ) -> Images:
    x = resize(images, (side, side))
    room = jnp.array([side - self.size[0] + 1, side - self.size[1] + 1])
    starts = jax.random.randint(key, (len(x), 2), 0, room)
    size = (*self.size, x.shape[-1])
    window = lambda x, s: jax.lax.dynamic_slice(x, (s[0], s[1], 0), size)
    return jax.vmap(window)(x, starts)
