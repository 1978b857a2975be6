"""Pixels of a data set: channels and depth of the first image, mean and deviation."""

from collections.abc import Iterable
from concurrent import futures
import dataclasses
import os
from typing import Any

from absl import logging
from jaxtyping import Float
import numpy as np

from vit_jax.data import decoding
from vit_jax.data import preprocessing as preprocessing_lib
from vit_jax.runtime import errors

_MOST_TRIED = 16  # Images, until one can be decoded.
_MOST_MEASURED = 10_000
_DIGITS = 6
_ROUNDING = 1e-12  # Variances below this share of the mean square are errors.
# Standard deviations between the mean of an image and that of the training images.
_FAR = 30


@dataclasses.dataclass(frozen=True)
class Kind:
  """Channels and depth of the first image of a data set.

  Attributes:
    channels: how many it has; None for a picture, which is decoded to 1 or 3.
    is_float: whether its values are finer than 8 bits.
  """

  channels: int | None = None
  is_float: bool = False


def kind(source: Any) -> Kind:
  """Returns channels and depth of the first image that can be decoded."""
  for index in range(min(_MOST_TRIED, len(source))):
    try:
      image = source[index]['image']
      if not isinstance(image, np.ndarray) and decoding.is_picture(image):
        return Kind()
      pixels = decoding.as_pixels(image)
    except (OSError, ValueError):  # Training raises or skips it.
      continue
    return Kind(pixels.shape[-1], pixels.dtype != np.uint8)
  return Kind()


@dataclasses.dataclass(frozen=True)
class Moments:
  """Means of the values and of their squares by channel, where 1 is full scale."""

  mean: Float[np.ndarray, ' C']
  square: Float[np.ndarray, ' C']


def moments(image: decoding.Image) -> Moments:
  """Returns the moments of an image."""
  pixels = image.reshape(-1, image.shape[-1]) / np.float64(255)
  return Moments(pixels.mean(0), (pixels**2).mean(0))


def scale(of_images: Iterable[Moments]) -> dict[str, tuple[float, ...]]:
  """Returns 'mean' and 'std' of images together, each of which counts once.

  They have six digits, so that numbers that were printed are those of a run.
  """
  found = list(of_images)
  mean = np.mean([x.mean for x in found], axis=0)
  square = np.mean([x.square for x in found], axis=0)
  variance = square - mean**2
  std = np.sqrt(np.where(variance > _ROUNDING * square, variance, 0))
  return {'mean': _rounded(mean), 'std': _rounded(std)}


def _rounded(values: np.ndarray) -> tuple[float, ...]:
  return tuple(float(f'{x:.{_DIGITS}g}') for x in values)


def measure(source: Any, channels: int) -> dict[str, tuple[float, ...]]:
  """Returns 'mean' and 'std' of up to 10,000 images, evenly spaced.

  Raises:
    errors.UserError: if no image can be decoded, or a channel is the same in all.
  """
  places = np.linspace(0, len(source) - 1, min(_MOST_MEASURED, len(source)))
  with futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    found = list(
      pool.map(
        lambda index: _moments_at(source, index, channels),
        places.astype(int).tolist(),
      )
    )
  good = [x for x in found if isinstance(x, Moments)]
  if not good:
    raise errors.UserError(
      f'None of {len(found)} images can be decoded to {channels} channels. The first,'
      f' {found[0]}. Repair the images, or set config.pp.channels to what they have.'
    )
  result = scale(good)
  if constant := [i for i, x in enumerate(result['std'], 1) if not x]:
    raise errors.UserError(
      f'Channel {constant[0]} of {channels} has one value,'
      f' {result["mean"][constant[0] - 1]:g}, in all {len(good)} images measured:'
      f' leave it out, or set config.pp.mean and config.pp.std.'
    )
  text = {k: ','.join(f'{x:g}' for x in v) for k, v in result.items()}
  logging.info(
    'Measured on %d training images: config.pp.mean=(%s) config.pp.std=(%s).',
    len(good),
    text['mean'],
    text['std'],
  )
  return result


def _moments_at(source: Any, index: int, channels: int) -> Moments | str:
  """Returns the moments of an image, or its name and why it has none."""
  name = f'image {index}'
  try:
    example = source[index]
    name = example['name']
    return moments(decoding.as_pixels(example['image'], channels))
  except (OSError, ValueError) as e:  # Training raises or skips it.
    return f'{name}: {e}'


def check_scale(
  image: decoding.Image, how: preprocessing_lib.Preprocessing
) -> None:
  """Raises ValueError if float values are far from those that a model saw."""
  if image.dtype == np.uint8:
    return
  means = moments(image).mean
  distances = np.abs(means - np.asarray(how.mean)) / np.asarray(how.std)
  channel = int(distances.argmax())
  if distances[channel] > _FAR:
    raise ValueError(
      f'the mean of its channel {channel + 1} is {means[channel]:.4g},'
      f' {distances[channel]:.0f} standard deviations from that of training:'
      f' its values have another unit (uint16 is divided by 65535, floats are'
      f' taken as they are)'
    )
