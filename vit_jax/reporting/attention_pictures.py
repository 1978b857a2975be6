"""Pictures of the attention of a Vision Transformer, and of its first layer."""

from collections.abc import Callable, Sequence
import functools
import itertools
import pathlib
import re
from typing import Any

import cv2
from jaxtyping import Float
import numpy as np

from vit_jax import predictor as predictor_lib
from vit_jax.evaluation import attention_maps
from vit_jax.reporting import colours
from vit_jax.reporting import plot
from vit_jax.runtime import errors
from vit_jax.weights import record as weights_lib

Picture = Float[np.ndarray, 'h w 3']

_MIN_SIDE = 384  # Smaller images are enlarged.
_LONGEST_STEM = 200  # Bytes: file systems allow 255, suffix included.


def draw(
  predictor: predictor_lib.Predictor,
  names: Sequence[str],
  folder: pathlib.Path,
) -> list[pathlib.Path]:
  """Writes the pictures that `vit-jax attention --help` lists; returns their paths.

  Raises:
    errors.UserError: if the model has no attention, an image is missing or cannot
      be decoded, or the folder cannot be written.
  """
  with errors.writing(folder):
    folder.mkdir(parents=True, exist_ok=True)
    paths, distances = [], []
    stems = _unique([_stem(name) for name in names])
    grid, (height, width, _) = predictor.grid, predictor.image_shape
    has_token = predictor.weights.spec.has_class_token
    patch = height / grid[0], width / grid[1]
    # One by one: the weights of an image may take 200 MB.
    for name, stem in zip(names, stems, strict=True):
      for _, image in predictor.prepared(name):
        [weights] = predictor.attention(name)
        mapped = functools.partial(
          attention_maps.patch_map, grid=grid, has_class_token=has_token
        )
        paths += _draw_image(as_picture(image), weights, mapped, folder / stem)
        distances.append(attention_maps.mean_distances(weights, grid, patch))
    if not distances:
      raise errors.UserError('None of the images can be decoded.')
    return paths + _draw_model(predictor, np.mean(distances, axis=0), folder)


def as_picture(image: Float[np.ndarray, 'H W C']) -> Picture:
  """Returns an image with three channels, enlarged if it is small."""
  image = colours.of_image(image)
  scale = max(1, -(-_MIN_SIDE // min(image.shape[:2])))
  size = (image.shape[1] * scale, image.shape[0] * scale)
  # Nearest neighbours: the pixels of small images stay visible.
  return cv2.resize(image, size, interpolation=cv2.INTER_NEAREST)


def on_image(image: Picture, values: attention_maps.Map) -> Picture:
  """Returns an image with the values of its patches over it."""
  size = (image.shape[1], image.shape[0])
  smooth = cv2.resize(values, size, interpolation=cv2.INTER_CUBIC)
  return plot.overlay(image, np.maximum(smooth, 0))


def _draw_image(
  image: Picture,
  weights: Float[np.ndarray, 'layers heads L L'],
  mapped: Callable[[Any], Any],
  stem: pathlib.Path,
) -> list[pathlib.Path]:
  kinds = ('rollout', 'last_layer', 'heads')
  paths = [stem.with_name(f'{stem.name}_{kind}.png') for kind in kinds]
  rolled = mapped(attention_maps.rollout(weights))
  shown = on_image(image, np.asarray(rolled))
  both = {'Input': image, 'Attention rollout': shown}
  plot.save(plot.pictures(both), paths[0])

  maps = np.asarray(mapped(weights))
  last = {'Mean of the heads': on_image(image, maps[-1].mean(axis=0))}
  for head, values in enumerate(maps[-1], 1):
    last[f'Head {head}'] = on_image(image, values)
  plot.save(plot.pictures(last), paths[1])

  maps = maps / np.maximum(maps.max(axis=(-2, -1), keepdims=True), 1e-12)
  factor = max(1, 48 // max(maps.shape[-2:]))
  figure = plot.mosaic(
    maps.repeat(factor, axis=-2).repeat(factor, axis=-1),
    x='Head',
    y='Layer',
    title='Attention, each head scaled by its largest weight',
  )
  plot.save(figure, paths[2])
  return paths


def _draw_model(
  predictor: predictor_lib.Predictor,
  distances: Float[np.ndarray, 'layers heads'],
  folder: pathlib.Path,
) -> list[pathlib.Path]:
  tower = predictor.weights.image_tower()
  params = tower.params
  paths = [folder / 'distances.png']
  y = 'Mean attention distance (pixels)'
  plot.save(plot.points(distances, x='Layer', y=y), paths[0])
  if name := tower.spec.position_embeddings:
    paths.append(folder / 'positions.png')
    posemb = weights_lib.flatten(params)[name]
    figure = plot.mosaic(
      attention_maps.position_similarities(posemb, predictor.grid),
      x='Column of the patch',
      y='Row of the patch',
      title='Similarity of position embeddings',
      bar='Cosine',
    )
    plot.save(figure, paths[-1])
  paths.append(folder / 'filters.png')
  kernel = np.asarray(weights_lib.first_kernel(params))
  plot.save(_filters(kernel), paths[-1])
  return paths


def _filters(kernel: Float[np.ndarray, 'h w C D']) -> Any:
  filters = attention_maps.first_filters(kernel)
  channels = filters.shape[-1]
  if channels != 3:  # As `colours` chooses; all have one scale.
    shown = filters[..., : 3 if channels > 3 else 1]
    filters = np.broadcast_to(shown, (*filters.shape[:3], 3))
  columns = min(7, len(filters))
  rows = len(filters) // columns
  tiles = filters[: rows * columns].reshape(rows, columns, *filters.shape[1:])
  factor = max(1, 32 // max(kernel.shape[:2]))
  return plot.mosaic(
    tiles.repeat(factor, axis=2).repeat(factor, axis=3),
    title='Principal components of the first layer',
  )


def _stem(name: str) -> str:
  """Returns the name of an image without folder and suffix, for file names."""
  stem = pathlib.PurePath(name).stem
  stem = re.sub(r'[^\w.-]', '_', stem).lstrip('.') or 'image'
  return stem.encode()[:_LONGEST_STEM].decode(errors='ignore')


def _unique(stems: Sequence[str]) -> list[str]:
  """Returns the names, with numbers where they repeat."""
  unique: list[str] = []
  for stem in stems:
    others = (f'{stem}_{n}' for n in itertools.count(2))
    name = stem
    while name in unique:
      name = next(others)
    unique.append(name)
  return unique
