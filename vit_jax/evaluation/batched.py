"""Functions of parameters and images, applied to any images in batches."""

from collections.abc import Callable
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float32
import numpy as np

from vit_jax.data import inputs
from vit_jax.data import pipeline
from vit_jax.data import preprocessing as preprocessing_lib
from vit_jax.data import sources
from vit_jax.data.augmentation import augment
from vit_jax.data.augmentation import transforms
from vit_jax.evaluation import ranking
from vit_jax.runtime import errors
from vit_jax.runtime import sharding

Function = Callable[..., Array]


class Batched:
  """Applies functions to images, on all devices of this host.

  A function takes parameters and preprocessed images [B, H, W, C]. It is compiled once
  for its key. Images are those that `predictor.Predictor` takes.

  Attributes:
    skipped: why images could not be decoded, by their names, if
      `on_bad_image='skip'`.
  """

  def __init__(
    self,
    params: Any,
    preprocessing: preprocessing_lib.Preprocessing,
    image_shape: tuple[int, int, int],
    *,
    batch_size: int,
    on_bad_image: str,
  ):
    """Puts the parameters on the devices.

    Args:
      params: the parameters.
      preprocessing: how an image becomes the input.
      image_shape: [H, W, C] of the input.
      batch_size: batch size over all devices.
      on_bad_image: 'raise' names an image that cannot be decoded, 'skip' omits it.
    """
    self.skipped: dict[str, str] = {}
    self._preprocessing = preprocessing
    self._image_shape = image_shape
    self._on_bad_image = on_bad_image
    self._mesh = sharding.make_mesh(devices=jax.local_devices())
    self._batch_size = self._rounded_up(batch_size)
    self._params = jax.device_put(params, sharding.replicated(self._mesh))
    self._jitted: dict[Any, Function] = {}

  def _rounded_up(self, count: int) -> int:
    """Returns the next number of images that the devices can share."""
    devices = sharding.parts(self._mesh)
    return -(-count // devices) * devices

  def rows(self, key: Any, function: Function, images: Any) -> ranking.Rows:
    """Yields the index and the output of each decoded image, as they come."""
    decoded = self._decoded(images)
    if not len(decoded):
      return
    # Fewer than a batch are not padded to one, but split over the devices.
    batch_size = min(self._batch_size, self._rounded_up(len(decoded)))
    step_fn = self._jit(key, function)
    transform = transforms.EvalImage(
      self._image_shape[:2],
      self._preprocessing.resize_test,
      self._preprocessing.interpolation,
    )
    batches = pipeline.eval_batches(decoded, transform, batch_size=batch_size)
    yield from pipeline.decoded_rows(
      sharding.put_batches(batches, self._mesh, batch_size),
      functools.partial(step_fn, self._params),
    )

  def stacked(
    self, key: Any, function: Function, images: Any
  ) -> Float32[np.ndarray, 'N ...']:
    """Returns the outputs of all decoded images."""
    rows = [row for _, row in self.rows(key, function, images)]
    if rows:
      return np.stack(rows)
    image = jax.ShapeDtypeStruct((1, *self._image_shape), jnp.float32)
    shape = jax.eval_shape(function, self._params, image).shape
    return np.zeros((0, *shape[1:]), np.float32)

  def _jit(self, key: Any, function: Function) -> Function:
    mean, std = self._preprocessing.mean, self._preprocessing.std

    def call(params: Any, images: Array) -> Array:
      pixels = augment.normalize(images, mean, std)
      return function(params, pixels).astype(jnp.float32)

    if key not in self._jitted:
      self._jitted[key] = jax.jit(sharding.in_mesh(self._mesh, call))
    return self._jitted[key]

  def _decoded(self, images: Any) -> pipeline.Decoded:
    channels = self._image_shape[2]
    if not isinstance(images, sources.Source):
      images = inputs.InputSource(inputs.as_sequence(images), channels)
    have = images.image_shape
    if have and have[-1] != channels:
      raise errors.UserError(
        f'The images have {have[-1]} channels, the model takes {channels}.'
      )
    return pipeline.Decoded(
      images,
      exif=self._preprocessing.exif,
      channels=channels,
      is_float=None,
      expected=self._preprocessing,
      on_bad_image=self._on_bad_image,
      on_host=True,
      skipped=self.skipped,
    )
