"""A trained model in use, `vit_jax.load`: classes, features, attention."""

from collections.abc import Mapping
import functools
import os
import types
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32
import numpy as np

from vit_jax import checkpoint
from vit_jax.configs import common
from vit_jax.data import sources
from vit_jax.evaluation import attention_maps
from vit_jax.evaluation import batched
from vit_jax.evaluation import labelled
from vit_jax.evaluation import ranking
from vit_jax.models import capture
from vit_jax.models import inference
from vit_jax.runtime import errors
from vit_jax.weights import record as weights_lib

Rows = ranking.Rows


def load(
  path: os.PathLike | str,
  *,
  size: int | tuple[int, int] | None = None,
  batch_size: int = 32,
  on_bad_image: str = 'raise',
  mirror: bool = False,
  dtype: str | None = None,
) -> 'Predictor':
  """Returns a trained model, ready for use.

  >>> model = vit_jax.load('ViT-Mini_8')
  >>> model
  Predictor(ViT-Mini_8: 4,092,104 parameters, 200 classes, 64x64 pixels)
  >>> images = np.zeros([2, 48, 64, 3], np.uint8)  # Or ['photo.jpg', 'other.png'].
  >>> [[(label, probability)], _] = model.predict(images, top_k=1)

  Args:
    path: a folder WORKDIR or WORKDIR/artifact of a run; a file or folder of
      weights of any format, see `checkpoint.read`; an address; or a released name,
      which `vit-jax models` lists and which is downloaded once.
    size: (height, width) of the input in pixels, or one number for both; None for
      the size of the weights. Position embeddings are resized.
    batch_size: batch size over all devices.
    on_bad_image: 'raise' names an image that cannot be decoded, 'skip' omits it.
    mirror: whether probabilities are the mean of those of an image and of its
      mirror image.
    dtype: precision of the computation: 'float32', or 'bfloat16', which is faster
      where the hardware multiplies it; None for that of the run that made the
      weights, else 'float32'. Outputs are float32.

  Raises:
    errors.UserError: if there are no such weights, or not of an image model.
  """
  weights = checkpoint.read(path, size)
  return Predictor(
    weights,
    batch_size=batch_size,
    on_bad_image=on_bad_image,
    mirror=mirror,
    dtype=dtype,
  )


class Predictor:
  """A trained model and its labels, on all devices of this host.

  >>> model = vit_jax.load('ViT-Mini_8')
  >>> image = np.zeros([48, 64, 3], np.uint8)

  `images` are file names, addresses, arrays [H, W, C] or [H, W] of uint8, uint16 or
  float32 (65535 and 1.0 are white), or Pillow images; one, a sequence or an array
  [N, H, W, C] of them; or a source of `data.sources`. They are preprocessed as in
  evaluation. Methods raise
  `errors.UserError` at an image that is missing or cannot be decoded, or if the
  model lacks a trained head, attention or the layer they need. A model with two
  towers gives features and attention of its image tower.

  Attributes:
    weights: parameters, model and preprocessing.
    skipped: why images could not be decoded, by their names, if
      `on_bad_image='skip'`.
  """

  def __init__(
    self,
    weights: weights_lib.Weights,
    *,
    batch_size: int = 32,
    on_bad_image: str = 'raise',
    mirror: bool = False,
    dtype: str | None = None,
  ):
    """Puts the parameters on the devices; `load` documents the arguments."""
    weights_lib.check_vision(weights)
    tower = weights.image_tower()
    module = tower.module()
    if dtype is not None:
      common.RULES['dtype'].check(dtype, 'dtype')
      module = module.clone(dtype=jnp.dtype(dtype))
    assert isinstance(module, capture.Model)
    self.weights = weights
    self._module = module
    self._mirror = mirror
    params = inference.cast_weights(dict(tower.params), module.dtype)
    self._batched = batched.Batched(
      params,
      weights.preprocessing,
      weights.input_shape(),
      batch_size=batch_size,
      on_bad_image=on_bad_image,
    )
    self.skipped = self._batched.skipped

  def __repr__(self) -> str:
    return f'Predictor({weights_lib.describe(self.weights)})'

  @property
  def labels(self) -> list[str]:
    """Names of the classes, or of the numbers, in the order of the logits."""
    return list(self.weights.class_names)

  @property
  def image_shape(self) -> tuple[int, int, int]:
    """[H, W, C] of the model's input."""
    return self.weights.input_shape()

  @property
  def grid(self) -> tuple[int, int]:
    """(rows, columns) of patches of an image."""
    return self.weights.grid()

  def evaluate(
    self,
    dataset: os.PathLike | str,
    split: str = 'test',
    *,
    columns: Mapping[str, str] = types.MappingProxyType({}),
    data_dir: str | None = None,
  ) -> dict[str, Any]:
    """Returns the scores of labelled images that `vit-jax evaluate --output` writes.

    `evaluate('/path/to/images')['accuracy_test']` is the share of correct predictions.

    Args:
      dataset: a folder, table, ... or a name, see `config.dataset`.
      split: split in TFDS notation. Of a data set without 'test', the images that the
        run of the weights left out.
      columns: fields of `config.columns`, such as {'label': 'species'}.
      data_dir: folder of TFDS data sets and CIFAR; None for the default.

    Raises:
      errors.UserError: if the model does not know the classes of the images.
    """
    dataset = os.fspath(dataset)
    known = labelled.columns_of(self.weights, columns)
    _, split = labelled.splits([self.weights], dataset, 'train', split, known)
    source = sources.get_source(
      dataset, split, data_dir=data_dir, columns=known
    )
    labelled.check_task(self.weights, source)
    rows = self.probabilities(source)
    return labelled.all_scores(rows, self.weights, source)

  def predict(self, images: Any, *, top_k: int = 5) -> list[ranking.Prediction]:
    """Returns, for each image, its most probable classes, the best first.

    >>> [prediction] = model.predict(image, top_k=2)
    >>> [label for label, probability in prediction]
    ['fountain', 'candle']

    Of a model whose images may have several classes, it returns those that reach
    their threshold; of one that predicts numbers, the name and value of each.
    """
    rows = self.probabilities(images)
    if top_k < 1:
      raise errors.UserError(f'top_k is {top_k}, must be at least 1.')
    return [ranking.choose(row, self.weights, top_k) for _, row in rows]

  def probabilities(self, images: Any) -> Rows:
    """Yields the index and the probabilities [K], or numbers, of each decoded image."""
    weights_lib.check_can_predict(self.weights)
    to_predictions = weights_lib.to_predictions(self.weights)

    def probabilities(params: Any, x: Float[Array, 'B H W C']) -> Array:
      p = to_predictions(inference.apply(self._module, params, x))
      if not self._mirror:
        return p
      mirrored = inference.apply(self._module, params, x[:, :, ::-1])
      return (p + to_predictions(mirrored)) / 2

    return self._batched.rows('probabilities', probabilities, images)

  def logits(self, images: Any) -> Float32[np.ndarray, 'N K']:
    """Returns the outputs of the head, before softmax or sigmoid.

    >>> model.logits(image).shape
    (1, 200)
    """
    weights_lib.check_can_predict(self.weights)
    function = functools.partial(inference.apply, self._module)
    return self._batched.stacked('logits', function, images)

  def features(
    self,
    images: Any,
    *,
    layer: int | None = None,
    pooling: str | None = None,
  ) -> Float32[np.ndarray, 'N ...']:
    """Returns embeddings of images, [N, D].

    >>> model.features(image, layer=2, pooling='tokens').shape
    (1, 64, 192)

    Args:
      images: see the class.
      layer: encoder block to take, from 1; None for the input of the head or, with
        `pooling`, the last LayerNorm.
      pooling: 'cls' (class token), 'gap' (mean of the patches), 'tokens' (all
        tokens, [N, L, D]); None for that of the model.
    """
    function = capture.features(self._module, layer, pooling)
    return self._batched.stacked(('features', layer, pooling), function, images)

  def iter_features(
    self, images: Any, layer: int | None = None, pooling: str | None = None
  ) -> Rows:
    """Yields the index and the `features` of each decoded image."""
    function = capture.features(self._module, layer, pooling)
    return self._batched.rows(('features', layer, pooling), function, images)

  def attention(self, images: Any) -> Float32[np.ndarray, 'N layers heads L L']:
    """Returns attention weights of all layers and heads; each row sums to 1.

    The class token, the distillation token and registers, as far as the model has
    them, come in this order before the `grid` of patches.

    >>> model.attention(image).shape
    (1, 9, 3, 64, 64)
    """
    function = capture.attention(self._module)
    return self._batched.stacked('attention', function, images)

  def rollout(self, images: Any) -> Float32[np.ndarray, 'N rows columns']:
    """Returns the attention rollout of each patch, see `attention_maps.rollout`.

    >>> model.rollout(image).shape
    (1, 8, 8)
    """
    mean = capture.attention(
      self._module, lambda weights: weights.mean(axis=1, keepdims=True)
    )

    def function(params: Any, x: Float[Array, 'B H W C']) -> Any:
      rolled = jax.vmap(attention_maps.rollout)(mean(params, x))
      return attention_maps.patch_map(
        rolled, self.grid, self.weights.spec.has_class_token
      )

    return self._batched.stacked('rollout', function, images)

  def prepared(self, images: Any) -> Rows:
    """Yields the index and the pixels [H, W, C] that the model sees, 1 is white."""
    preprocessing = self.weights.preprocessing
    mean = np.asarray(preprocessing.mean, np.float32)
    std = np.asarray(preprocessing.std, np.float32)
    for place, x in self._batched.rows('images', lambda _, x: x, images):
      yield place, x * std + mean
