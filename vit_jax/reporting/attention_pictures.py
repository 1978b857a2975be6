"""Pictures of what a Vision Transformer looks at, and of its first layer."""

from collections.abc import Iterator, Sequence
import itertools
import pathlib
import re
from typing import Any

import cv2
from jaxtyping import Float
import numpy as np

from vit_jax import predictor as predictor_lib
from vit_jax.evaluation import attention_maps
from vit_jax.reporting import plot
from vit_jax.runtime import errors
from vit_jax.weights import record as weights_lib

Picture = Float[np.ndarray, 'h w 3']

_MIN_SIDE = 384  # Smaller images are drawn larger.
_LONGEST_STEM = 200  # Bytes: file systems allow 255, with what comes after it.


def draw(
  predictor: predictor_lib.Predictor,
  names: Sequence[str],
  folder: pathlib.Path,
) -> list[pathlib.Path]:
  """Writes the pictures that `vit-jax attention --help` lists; returns their paths.

  Raises:
    errors.UserError: if the model has no attention, or at what is missing or no
      image, or if the folder cannot be written.
  """
  try:
    folder.mkdir(parents=True, exist_ok=True)
    paths, distances = [], []
    stems = _unique([_stem(name) for name in names])
    for place, image, weights in _read(predictor, names):
      paths += _draw_image(image, weights, predictor, folder, stems[place])
      distances.append(
        attention_maps.mean_distances(
          weights, predictor.grid, _patch_pixels(predictor)
        )
      )
    if not distances:
      raise errors.UserError('None of the images can be decoded.')
    return paths + _draw_model(predictor, np.mean(distances, axis=0), folder)
  except OSError as e:
    raise errors.UserError(f'{folder} cannot be written: {e.strerror}.') from e


def _read(
  predictor: predictor_lib.Predictor, names: Sequence[Any]
) -> Iterator[tuple[int, Picture, attention_maps.Weights]]:
  """Yields images one by one: the weights of one may be 200 MB."""
  for place, name in enumerate(names):
    image = [x for _, x in predictor.prepared(name)]
    if image:
      yield place, as_picture(image[0]), predictor.attention(name)[0]


def as_picture(image: Float[np.ndarray, 'H W C']) -> Picture:
  """Returns an image in three colours, at least as large as is well seen."""
  if image.shape[-1] != 3:
    image = image[..., :1].repeat(3, axis=-1)
  scale = max(1, -(-_MIN_SIDE // min(image.shape[:2])))
  size = (image.shape[1] * scale, image.shape[0] * scale)
  # Pixels stay visible as such where they are few.
  return cv2.resize(image, size, interpolation=cv2.INTER_NEAREST)


def on_image(image: Picture, values: attention_maps.Map) -> Picture:
  """Returns an image with the values of its patches on it."""
  size = (image.shape[1], image.shape[0])
  smooth = cv2.resize(values, size, interpolation=cv2.INTER_CUBIC)
  return plot.overlay(image, np.maximum(smooth, 0))


def _draw_image(
  image: Picture,
  weights: attention_maps.Weights,
  predictor: predictor_lib.Predictor,
  folder: pathlib.Path,
  stem: str,
) -> list[pathlib.Path]:
  grid = predictor.grid
  paths = [
    folder / f'{stem}_{kind}.png' for kind in ('rollout', 'last_layer', 'heads')
  ]
  rolled = attention_maps.patch_map(attention_maps.rollout(weights), grid)
  shown = on_image(image, np.asarray(rolled))
  both = {'Input': image, 'Attention rollout': shown}
  plot.save(plot.pictures(both), paths[0])

  maps = attention_maps.patch_map(weights, grid)
  last = {'Mean of the heads': on_image(image, maps[-1].mean(axis=0))}
  for head, values in enumerate(maps[-1], 1):
    last[f'Head {head}'] = on_image(image, values)
  plot.save(plot.pictures(last), paths[1])

  maps = maps / np.maximum(maps.max(axis=(-2, -1), keepdims=True), 1e-12)
  factor = max(1, 48 // max(grid))
  figure = plot.mosaic(
    maps.repeat(factor, axis=-2).repeat(factor, axis=-1),
    x='Head',
    y='Layer',
    title='Attention, each head by its largest weight',
  )
  plot.save(figure, paths[2])
  return paths


def _draw_model(
  predictor: predictor_lib.Predictor,
  distances: Float[np.ndarray, 'layers heads'],
  folder: pathlib.Path,
) -> list[pathlib.Path]:
  params = predictor.weights.params
  paths = [folder / 'distances.png']
  figure = plot.points(
    distances, x='Layer', y='Mean attention distance (pixels)'
  )
  plot.save(figure, paths[0])
  if name := predictor.weights.spec.position_embeddings:
    paths.append(folder / 'positions.png')
    figure = plot.mosaic(
      attention_maps.position_similarities(
        weights_lib.flatten(params)[name], predictor.grid
      ),
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
  if filters.shape[-1] != 3:
    filters = filters[..., :1].repeat(3, axis=-1)
  columns = min(7, len(filters))
  rows = len(filters) // columns
  tiles = filters[: rows * columns].reshape(rows, columns, *filters.shape[1:])
  factor = max(1, 32 // max(kernel.shape[:2]))
  return plot.mosaic(
    tiles.repeat(factor, axis=2).repeat(factor, axis=3),
    title='Principal components of the first layer',
  )


def _patch_pixels(predictor: predictor_lib.Predictor) -> tuple[float, float]:
  (height, width), (rows, columns) = (
    predictor.weights.image_shape[:2],
    predictor.grid,
  )
  return height / rows, width / columns


def _stem(name: str) -> str:
  """Returns a name for files: that of the image without folder and suffix."""
  stem = pathlib.PurePath(name).stem
  stem = re.sub(r'[^\w.-]', '_', stem).lstrip('.') or 'image'
  return stem.encode()[:_LONGEST_STEM].decode(errors='ignore')


def _unique(stems: Sequence[str]) -> list[str]:
  """Returns names of which no two are the same."""
  unique: list[str] = []
  for stem in stems:
    others = (f'{stem}_{n}' for n in itertools.count(2))
    name = stem
    while name in unique:
      name = next(others)
    unique.append(name)
  return unique
