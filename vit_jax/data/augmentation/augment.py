"""Device transforms, jittable: the host's transforms, for small images of one size.

CIFAR-sized images are sent as they are, uint8, and are cropped, resized, mirrored
and normalised inside the step. Photographs are resized on the host. Both kinds
change colours and are erased here.
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, Shaped, UInt8
import numpy as np

from vit_jax.data import preprocessing
from vit_jax.data.augmentation import color_jitter
from vit_jax.data.augmentation import crops
from vit_jax.data.augmentation import mixing

Images = Float[Array, 'B h w C']
Raw = UInt8[Array | np.ndarray, 'B H W C']
Sent = Shaped[Array | np.ndarray, 'B H W C']


def normalize(
  images: Sent, mean: Sequence[float] = (0.5,), std: Sequence[float] = (0.5,)
) -> Images:
  """Maps uint8, or uint16 in steps of 1/256, to (x / 255 - mean) / std.

  Mean and standard deviation have one value, or one for each channel. The
  official 0.5 and 0.5 give [-1, 1].
  """
  x = jnp.asarray(images, jnp.float32)
  if images.dtype == jnp.uint16:
    x = x / 256
  centre, scale = (255 * np.asarray(v, np.float32) for v in (mean, std))
  return (x - centre) / scale


def crop_and_resize(
  images: Sent, boxes: Int[Array, 'B 4'], size: crops.Size
) -> Images:
  """Resizes crops (top, left, height, width) as `tf.image.resize` does.

  Two matrix products with interpolation weights that stay within the crop;
  `jax.image.scale_and_translate` would read pixels outside of it. The result is
  in [0, 255].
  """
  _, height, width, _ = images.shape
  rows = _interpolation(boxes[:, 0], boxes[:, 2], height, size[0])
  columns = _interpolation(boxes[:, 1], boxes[:, 3], width, size[1])
  x = jnp.asarray(images, jnp.float32)
  x = jnp.einsum('bhH,bHWC->bhWC', rows, x, precision='highest')
  return jnp.einsum('bwW,bhWC->bhwC', columns, x, precision='highest')


def _interpolation(
  start: Int[Array, ' B'], length: Int[Array, ' B'], old: int, new: int
) -> Float[Array, 'B new old']:
  centres = (jnp.arange(new) + 0.5) * length[:, None] / new - 0.5
  centres = jnp.clip(centres, 0, length[:, None] - 1) + start[:, None]
  distance = jnp.abs(centres[..., None] - jnp.arange(old))
  return jnp.maximum(0.0, 1.0 - distance)


def resize(images: Sent, size: crops.Size) -> Images:
  """Resizes whole images as `tf.image.resize` does; float32 in [0, 255]."""
  if images.shape[1:3] == tuple(size):
    return jnp.asarray(images, jnp.float32)
  box = jnp.array([0, 0, *images.shape[1:3]], jnp.int32)
  return crop_and_resize(images, jnp.tile(box, (len(images), 1)), size)


def resize_as_pillow(images: Sent, size: crops.Size, method: str) -> Images:
  """Resizes as Pillow does: first columns, then rows, each rounded to integers.

  `method` is JAX's name of the filter.
  """
  x = jnp.asarray(images, jnp.float32)
  for axis in (2, 1):
    if x.shape[axis] == size[axis - 1]:
      continue
    shape = (*x.shape[:axis], size[axis - 1], *x.shape[axis + 1 :])
    x = jax.image.resize(x, shape, method, antialias=True)
    x = jnp.floor(jnp.clip(x, 0, 255) + 0.5)
  return x


# How evaluation resizes, by `config.pp.interpolation`.
RESIZES: dict[str, Callable[[Sent, crops.Size], Images]] = {
  'bilinear': resize,
  'bilinear_antialias': functools.partial(resize_as_pillow, method='linear'),
  'bicubic': functools.partial(resize_as_pillow, method='cubic'),
}


def _random_flip(key: Key[Array, ''], images: Images) -> Images:
  mirrored = jax.random.bernoulli(key, shape=(len(images), 1, 1, 1))
  return jnp.where(mirrored, images[:, :, ::-1], images)


@dataclasses.dataclass(frozen=True)
class Preprocess(crops.RandomCrop):
  """Turns images from the host into the model's input, float32 [B, *size, C]."""

  resize_test: int | crops.Size | None = None  # See `transforms.eval_image`.
  interpolation: str = 'bilinear'  # See `eval`.
  color_jitter: Sequence[int | float] = ()  # See `color_jitter.color_jitter`.
  random_erasing: float = 0.0  # Probability.
  on_device: bool = True  # Whether raw images are cropped and resized here.
  mean: Sequence[float] = (0.5,)  # See `normalize`.
  std: Sequence[float] = (0.5,)

  def train(self, key: Key[Array, ''], images: Sent) -> Images:
    """Crops, mirrors and changes colours at random, normalises, erases."""
    crop_key, flip_key, jitter_key, erase_key = jax.random.split(key, 4)
    x = jnp.asarray(images)
    if self.on_device:
      x = self._crop(crop_key, x)
      x = _random_flip(flip_key, x) if self.flip else x
    if any(self.color_jitter):
      x = x.astype(jnp.float32)
      x = color_jitter.color_jitter(jitter_key, x, self.color_jitter)
    x = normalize(x, self.mean, self.std)
    if self.random_erasing:
      x = mixing.random_erasing(erase_key, x, self.random_erasing)
    return x

  def eval(self, images: Sent) -> Images:
    """Resizes, crops the centre if `resize_test` is set, and normalises."""
    if self.on_device:
      _, height, width, _ = images.shape
      resize_to = self.resize_test or self.size
      resized = crops.resized_size(height, width, resize_to, self.interpolation)
      rows, columns = crops.centre(resized, self.size)
      resize_to_size = RESIZES[self.interpolation]
      images = resize_to_size(images, resized)[:, rows, columns]
    return normalize(images, self.mean, self.std)

  def for_model(
    self, images: Images, other: preprocessing.Preprocessing
  ) -> Float[Array, 'B height width C']:
    """Returns normalised images as another model, of known size, expects them."""
    assert other.size is not None
    mean, std = (np.asarray(v, np.float32) for v in (self.mean, self.std))
    pixels = 255 * (images * std + mean)
    resized = RESIZES[other.interpolation](pixels, other.size)
    return normalize(resized, other.mean, other.std)

  def _crop(self, key: Key[Array, ''], images: Raw) -> Images:
    if self.takes_window:
      return self._random_window(key, images)
    num, height, width, _ = images.shape
    boxes = crops.sample_area_crops(
      key, num, height, width, self.area, self.ratio
    )
    return crop_and_resize(images, boxes, self.size)

  def _random_window(self, key: Key[Array, ''], images: Raw) -> Images:
    x = resize(images, self.window_source)
    if self.pad:
      sides = ((0, 0), (self.pad, self.pad), (self.pad, self.pad), (0, 0))
      x = jnp.pad(x, sides, crops.PAD_MODES[self.pad_mode])
    room = jnp.array([x.shape[i + 1] - self.size[i] + 1 for i in (0, 1)])
    starts = jax.random.randint(key, (len(x), 2), 0, room)
    shape = (*self.size, x.shape[-1])
    window = lambda x, s: jax.lax.dynamic_slice(x, (s[0], s[1], 0), shape)
    return jax.vmap(window)(x, starts)
