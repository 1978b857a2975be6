"""A trained model in use, `vit_jax.load`: classes, features, attention."""

from collections.abc import Callable, Iterator
import functools
import os
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32
import numpy as np

from vit_jax import checkpoint
from vit_jax.data import augment
from vit_jax.data import inputs
from vit_jax.data import pipeline
from vit_jax.data import sources
from vit_jax.data import transforms
from vit_jax.evaluation import attention_maps
from vit_jax.models import capture
from vit_jax.models import inference
from vit_jax.runtime import errors
from vit_jax.runtime import sharding
from vit_jax.weights import record as weights_lib

Prediction = list[tuple[str, float]]


def load(
  path: os.PathLike | str,
  *,
  size: tuple[int, int] | None = None,
  batch_size: int = 32,
  on_bad_image: str = 'raise',
) -> 'Predictor':
  """Returns a trained model, ready for use.

  Args:
    path: what `checkpoint.read` takes: the artifact or the workdir of a run,
      weights of any format, a URL or a name.
    size: (height, width) of its input; None for that of the weights.
    batch_size: images at a time, at most.
    on_bad_image: 'raise' names it, 'skip' leaves it out.

  Raises:
    errors.UserError: if these are no weights of a model of images.
  """
  weights = read(path, size)
  return Predictor(weights, batch_size=batch_size, on_bad_image=on_bad_image)


def read(
  path: os.PathLike | str, size: tuple[int, int] | None = None
) -> weights_lib.Weights:
  """Returns weights of any format, for images of a size; see `load`."""
  weights = checkpoint.read(path)
  return checkpoint.at_size(weights, size, path=str(path)) if size else weights


class Predictor:
  """A trained model and its labels, on all devices of this host.

  Images are names of files, addresses, uint8 arrays [H, W, C] or [H, W] or
  pictures of Pillow; one or a sequence of them; or a source of `data.sources`.
  They are prepared as evaluation prepares them.

  Attributes:
    weights: parameters and what else they came with.
    labels: names of the classes, in the order of the logits.
    skipped: images that could not be decoded, of `on_bad_image='skip'`.
  """

  def __init__(
    self,
    weights: weights_lib.Weights,
    *,
    batch_size: int = 32,
    on_bad_image: str = 'raise',
  ):
    """Puts the parameters on the devices.

    Args:
      weights: of `checkpoint.read`.
      batch_size: as in `load`.
      on_bad_image: likewise.

    Raises:
      errors.UserError: if the weights are of images and texts, or do not tell
        which model they are of, or of which size its images are.
    """
    weights_lib.check_vision(weights)
    self.weights = weights
    self.labels = list(weights.class_names)
    self.skipped: set[str] = set()
    self._module = weights.module()
    self._on_bad_image = on_bad_image
    self._mesh = sharding.make_mesh(devices=jax.local_devices())
    devices = sharding.parts(self._mesh)
    self._batch_size = -(-batch_size // devices) * devices
    self._params = jax.device_put(
      inference.cast_weights(dict(weights.params), self._module.dtype),
      sharding.replicated(self._mesh),
    )
    self._jitted: dict[Any, Callable[..., Array]] = {}

  def __repr__(self) -> str:
    return f'Predictor({weights_lib.describe(self.weights)})'

  def predict(self, images: Any, *, top_k: int = 5) -> list[Prediction]:
    """Returns, for each image, its most probable classes, the best first.

    Args:
      images: see the class.
      top_k: how many classes, at most.

    Returns:
      [(class name, probability)] an image.

    Raises:
      errors.UserError: if these weights cannot predict, or at what is missing or
        no image.
    """
    return [self.best(row, top_k) for _, row in self.probabilities(images)]

  def best(self, row: Float32[np.ndarray, ' K'], top_k: int) -> Prediction:
    """Returns the most probable classes of a row of probabilities."""
    best = np.argsort(-row, kind='stable')[:top_k]
    return [(self.labels[i], float(row[i])) for i in best]

  def probabilities(
    self, images: Any
  ) -> Iterator[tuple[int, Float32[np.ndarray, ' K']]]:
    """Yields, for each image, its place in the sequence and probabilities [K].

    They sum to 1, or are each for itself where the model was trained with the
    sigmoid loss. Raises what `predict` does.
    """
    weights_lib.check_can_predict(self.weights)
    squash = (
      jax.nn.sigmoid if self.weights.loss == 'sigmoid' else jax.nn.softmax
    )

    def probabilities(params: Any, x: Float[Array, 'B H W C']) -> Array:
      return squash(inference.apply(self._module, params, x))

    return self.outputs('probabilities', probabilities, images)

  def logits(self, images: Any) -> Float32[np.ndarray, 'N K']:
    """Returns the outputs of the head, before softmax or sigmoid.

    Raises what `predict` does.
    """
    weights_lib.check_can_predict(self.weights)
    function = functools.partial(inference.apply, self._module)
    return self._stacked('logits', function, images)

  def features(
    self,
    images: Any,
    *,
    layer: int | None = None,
    pooling: str | None = None,
  ) -> Float32[np.ndarray, 'N ...']:
    """Returns embeddings of images [N, D].

    Args:
      images: see the class.
      layer: whose output is taken, from 1 to the depth of the model; None for
        what the head sees or, if there is a `pooling`, the last one after its
        LayerNorm.
      pooling: 'cls' (class token), 'gap' (mean of the other tokens), 'tokens'
        (all of them, [N, L, D]); None for that of the model.

    Raises:
      errors.UserError: if the model has no such layer or token, or at what is
        missing or no image.
    """
    function = self._features(layer, pooling)
    return self._stacked(('features', layer, pooling), function, images)

  def iter_features(
    self, images: Any, layer: int | None = None, pooling: str | None = None
  ) -> Iterator[tuple[int, Float32[np.ndarray, '...']]]:
    """Yields a place and features for each image, see `features`."""
    function = self._features(layer, pooling)
    return self.outputs(('features', layer, pooling), function, images)

  def _features(
    self, layer: int | None, pooling: str | None
  ) -> Callable[..., Array]:
    if layer is None and pooling is None:
      headless = self._module.clone(num_classes=None)
      return functools.partial(inference.apply, headless)
    return capture.features(self._module, layer, pooling)

  def attention(self, images: Any) -> Float32[np.ndarray, 'N layers heads L L']:
    """Returns the weights of attention of all layers and heads.

    A row, of a token that asks, sums to 1. The class token, if the model has
    one, is the first; patches follow in rows, as many as `grid` says.

    Raises:
      errors.UserError: if the model has no attention, or at what is missing or
        no image.
    """
    function = capture.attention(self._module)
    return self._stacked('attention', function, images)

  def rollout(self, images: Any) -> Float32[np.ndarray, 'N rows columns']:
    """Returns the attention rollout of each patch, see `attention_maps`.

    Raises what `attention` does.
    """
    mean = capture.attention(
      self._module, lambda weights: weights.mean(axis=1, keepdims=True)
    )

    def function(params: Any, x: Float[Array, 'B H W C']) -> Array:
      rolled = jax.vmap(attention_maps.rollout)(mean(params, x))
      return attention_maps.patch_map(rolled, self.grid)

    return self._stacked('rollout', function, images)

  def _stacked(
    self, key: Any, function: Callable[..., Array], images: Any
  ) -> Float32[np.ndarray, 'N ...']:
    """Returns what `outputs` yields, also of no image."""
    rows = [row for _, row in self.outputs(key, function, images)]
    if rows:
      return np.stack(rows)
    image = jax.ShapeDtypeStruct((1, *self.weights.image_shape), jnp.float32)
    shape = jax.eval_shape(function, self._params, image).shape
    return np.zeros((0, *shape[1:]), np.float32)

  @property
  def grid(self) -> tuple[int, int]:
    """(rows, columns) of patches of an image."""
    return weights_lib.grid(self.weights)

  def outputs(
    self,
    key: Any,
    function: Callable[..., Float[Array, 'B ...']],
    images: Any,
  ) -> Iterator[tuple[int, Float32[np.ndarray, '...']]]:
    """Yields a place and an output for each image, as they come.

    Args:
      key: stands for the function, which is compiled once.
      function: parameters and images [B, H, W, C], normalised, to [B, ...].
      images: see the class.
    """
    decoded = self._decoded(images)
    if not len(decoded):
      return
    # Fewer than a batch are not padded to one, but split over the devices.
    parts = sharding.parts(self._mesh)
    batch_size = min(self._batch_size, -(-len(decoded) // parts) * parts)
    step_fn = self._jit(key, function)
    batches = pipeline.eval_batches(
      decoded, self._transform(), batch_size=batch_size
    )
    place = 0
    for batch in sharding.put_batches(batches, self._mesh, batch_size):
      rows = step_fn(self._params, batch['image'])
      for row, is_real in zip(
        np.asarray(rows), np.asarray(batch['mask']), strict=True
      ):
        if is_real:
          yield place, row
        place += 1

  def prepared(
    self, images: Any
  ) -> Iterator[tuple[int, Float32[np.ndarray, 'H W C']]]:
    """Yields a place and an image in [0, 1], as the model sees it."""
    preprocessing = self.weights.preprocessing
    mean, std = np.float32(preprocessing.mean), np.float32(preprocessing.std)
    for place, x in self.outputs('images', lambda _, x: x, images):
      yield place, np.clip(x * std + mean, 0, 1)

  def _jit(self, key: Any, function: Callable[..., Array]) -> Callable:
    if key not in self._jitted:
      preprocessing = self.weights.preprocessing
      mean, std = preprocessing.mean, preprocessing.std

      def call(params: Any, images: Array) -> Array:
        outputs = function(params, augment.normalize(images, mean, std))
        return outputs.astype(jnp.float32)

      self._jitted[key] = jax.jit(sharding.in_mesh(self._mesh, call))
    return self._jitted[key]

  def _decoded(self, images: Any) -> pipeline.Decoded:
    channels = self.weights.image_shape[2]
    if not isinstance(images, sources.Source):
      images = inputs.InputSource(inputs.as_sequence(images), channels)
    have = images.image_shape
    if have and have[-1] != channels:
      raise errors.UserError(
        f'The images have {have[-1]} channels, the model takes {channels}.'
      )
    return pipeline.Decoded(
      images,
      exif=self.weights.preprocessing.exif,
      channels=channels,
      on_bad_image=self._on_bad_image,
      on_host=True,
      skipped=self.skipped,
    )

  def _transform(self) -> transforms.EvalImage:
    preprocessing = self.weights.preprocessing
    return transforms.EvalImage(preprocessing.size, preprocessing.resize_test)
