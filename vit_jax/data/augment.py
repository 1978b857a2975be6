"""Device transforms, jittable: what the host's do, for small images of one size.

CIFAR-sized images travel as they are, uint8, and are cropped, resized, mirrored
and normalised here, inside the step; photographs come resized from the host.
Colours are changed and rectangles erased here, of both.
"""

from collections.abc import Sequence
import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int, Key, UInt8
import numpy as np

from vit_jax.data import color_jitter
from vit_jax.data import mixing
from vit_jax.data import windows

_ATTEMPTS = 10

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
  ratio: tuple[float, float] = windows.RATIO,
) -> Int[Array, 'B 4']:
  """Samples (top, left, height, width) as `windows.sample_area_crop` does.

  The whole image where all of 10 attempts fail.
  """
  ratio_key, height_key, top_key, left_key = jax.random.split(key, 4)
  smallest, largest = area[0] * height * width, area[1] * height * width
  r = jax.random.uniform(
    ratio_key, (num, _ATTEMPTS), minval=ratio[0], maxval=ratio[1]
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
    area, ratio, resize, pad, pad_mode, flip: as in `transforms.TrainImage`.
    resize_test: as `resize` in `transforms.eval_image`.
    color_jitter: amounts, as in `color_jitter.color_jitter`; () for none.
    random_erasing: probability, as in `mixing.random_erasing`.
    on_device: whether the images come raw, to be cropped and resized here.
    mean, std: as in `normalize`.
  """

  size: tuple[int, int]
  area: tuple[float, float] = (0.05, 1.0)
  ratio: tuple[float, float] = windows.RATIO
  resize: int | None = None
  pad: int = 0
  pad_mode: str = 'zeros'
  flip: bool = True
  resize_test: int | tuple[int, int] | None = None
  color_jitter: Sequence[int | float] = ()
  random_erasing: float = 0.0
  on_device: bool = True
  mean: Sequence[float] = (0.5,)
  std: Sequence[float] = (0.5,)

  def train(self, key: Key[Array, ''], images: ArrayLike) -> Images:
    """Crops, mirrors and changes colours at random, normalises, erases."""
    crop_key, flip_key, jitter_key, erase_key = jax.random.split(key, 4)
    x = jnp.asarray(images)
    if self.on_device:
      x = self._crop(crop_key, x)
      x = random_flip(flip_key, x) if self.flip else x
    if any(self.color_jitter):
      x = color_jitter.color_jitter(
        jitter_key, x.astype(jnp.float32), self.color_jitter
      )
    x = self._normalize(x)
    if self.random_erasing:
      x = mixing.random_erasing(erase_key, x, self.random_erasing)
    return x

  def eval(self, images: ArrayLike) -> Images:
    """Resizes images, takes the middle if `resize_test` is set; normalises."""
    x = images
    if self.on_device:
      resized = windows.resized_size(
        *x.shape[1:3], self.resize_test or self.size
      )
      x = windows.centre(resize(x, resized), self.size)
    return self._normalize(x)

  def _normalize(self, images: ArrayLike) -> Images:
    return normalize(images, self.mean, self.std)

  def _crop(self, key: Key[Array, ''], images: Raw) -> Images:
    if self.resize or self.pad:
      return self._random_window(key, images)
    crops = sample_area_crops(key, *images.shape[:3], self.area, self.ratio)
    return crop_and_resize(images, crops, self.size)

  def _random_window(self, key: Key[Array, ''], images: Raw) -> Images:
    size = (self.resize, self.resize) if self.resize else self.size
    x = resize(images, size)
    if self.pad:
      sides = ((0, 0), (self.pad, self.pad), (self.pad, self.pad), (0, 0))
      x = jnp.pad(x, sides, windows.PAD_MODES[self.pad_mode])
    room = jnp.array([x.shape[i + 1] - self.size[i] + 1 for i in (0, 1)])
    starts = jax.random.randint(key, (len(x), 2), 0, room)
    size = (*self.size, x.shape[-1])
    window = lambda x, s: jax.lax.dynamic_slice(x, (s[0], s[1], 0), size)
    return jax.vmap(window)(x, starts)
