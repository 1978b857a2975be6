"""SigLIP 2 NaFlex (arXiv:2502.14786) in transformers.

Its own images keep their shapes, up to a number of patches. Here a model has one size
of images, by default that of the position embeddings, which are resized for others.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from vit_jax.configs import spec
from vit_jax.weights import record as weights_lib
from vit_jax.weights.families import record
from vit_jax.weights.families import siglip
from vit_jax.weights.families import towers
from vit_jax.weights.families.record import Arrays
from vit_jax.weights.families.record import Family
from vit_jax.weights.families.record import Json

_KERNEL = 'vision_model.embeddings.patch_embedding.weight'
_CHANNELS = 3  # The processor of transformers makes colour images.


def _naflex(family: Family, **fields: Any) -> Family:
  """Returns the NaFlex of a family of SigLIP, with further fields changed."""

  def read(config: Json, head: bool) -> dict[str, Any]:
    model = family.read(config, head)
    spec.image_tower(model)['posemb_resize'] = 'bilinear_antialias'
    return model

  def write(model: Json) -> dict[str, Any]:
    config = family.write(model)
    for tower in ('text', 'vision'):
      if f'{tower}_config' in config:
        config[f'{tower}_config']['model_type'] = f'siglip2_{tower}_model'
    return config

  return dataclasses.replace(
    family,
    read=read,
    write=write,
    complete=_complete,
    split=lambda arrays: _split(family.split(arrays)),
    join=lambda arrays: _join(family.join(arrays)),
    processor='Siglip2ImageProcessor',
    **fields,
  )


def _complete(config: Json, arrays: Arrays) -> dict[str, Any]:
  """Adds the size of images, which the number of position embeddings tells."""
  del arrays
  vision = towers.config_of(config, 'vision') or config
  side = math.isqrt(vision.get('num_patches', 256))
  patch = record.pair(vision.get('patch_size', 16))
  sized = {**vision, 'image_size': [side * n for n in patch]}
  return {**config, 'vision_config': sized} if vision is not config else sized


def _split(arrays: Arrays) -> dict[str, np.ndarray]:
  """Makes the linear layer of flat patches a convolution."""
  kernel = arrays.get(_KERNEL)
  if kernel is None or kernel.ndim != 2:
    return dict(arrays)
  side = math.isqrt(kernel.shape[1] // _CHANNELS)
  if side**2 * _CHANNELS != kernel.shape[1]:
    raise weights_lib.WeightsError(
      f'has patches of {kernel.shape[1]} numbers, which are not square and of'
      f' {_CHANNELS} channels.'
    )
  kernel = kernel.reshape(-1, side, side, _CHANNELS)
  return {**arrays, _KERNEL: kernel.transpose(0, 3, 1, 2)}


def _join(arrays: Arrays) -> dict[str, np.ndarray]:
  kernel = arrays[_KERNEL].transpose(0, 2, 3, 1)
  return {**arrays, _KERNEL: kernel.reshape(len(kernel), -1)}


SIGLIP2 = _naflex(siglip.SIGLIP, architectures=('Siglip2Model', None))
CLASSIFIER = _naflex(
  siglip.CLASSIFIER,
  architectures=(None, 'Siglip2ForImageClassification'),
  model_type='siglip2',
)
IMAGE = _naflex(siglip.IMAGE, architectures=('Siglip2VisionModel', None))
