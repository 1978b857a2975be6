"""Positions of tokens: learned, sines and cosines, rotations."""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float
import numpy as np

_TEMPERATURE = 10_000


class AddPositionEmbs(nn.Module):
  """Adds learned position embeddings, one vector a token (Eq. 1).

  Tokens in `range(*without)` get no embedding.
  """

  posemb_init: Callable[..., Any] = nn.initializers.normal(stddev=0.02)
  without: tuple[int, int] = (0, 0)

  @nn.compact
  def __call__(self, inputs: Float[Array, 'B L D']) -> Float[Array, 'B L D']:
    _, length, width = inputs.shape
    start, stop = self.without
    shape = (1, length - (stop - start), width)
    embeddings = self.param('pos_embedding', self.posemb_init, shape)
    if stop > start:
      nothing = np.zeros((1, stop - start, width), np.float32)
      rest = embeddings[:, :start], nothing, embeddings[:, start:]
      embeddings = jnp.concatenate(rest, axis=1)
    return inputs + embeddings.astype(inputs.dtype)


def sincos2d(grid: tuple[int, int], width: int) -> Float[np.ndarray, 'N D']:
  """Returns sines and cosines of both coordinates, a quarter of the width each.

  Follows arXiv:2205.01580, which follows MoCo v3 (arXiv:2104.02057). Raises a
  ValueError if 4 does not divide the width.
  """
  if width % 4 or width < 8:
    raise ValueError(
      f'The width is {width}, must be a multiple of 4 and at least 8.'
    )
  frequencies = _TEMPERATURE ** -np.linspace(0, 1, width // 4)
  y, x = np.mgrid[: grid[0], : grid[1]].reshape(2, -1, 1) * frequencies
  embeddings = np.concatenate([np.sin(x), np.cos(x), np.sin(y), np.cos(y)], 1)
  return embeddings.astype(np.float32)


def are_sincos2d(embeddings: Float[np.ndarray, 'N D']) -> bool:
  """Whether these are embeddings of `sincos2d` for some grid."""
  grids = [(n, len(embeddings) // n) for n in range(1, len(embeddings) + 1)]
  return any(
    # 16-bit files round by less than this.
    np.allclose(embeddings, sincos2d(grid, embeddings.shape[1]), atol=5e-3)
    for grid in grids
    if grid[0] * grid[1] == len(embeddings)
  )


@dataclasses.dataclass(frozen=True)
class Rotary:
  """Rotates queries and keys by the place of their patch (DINOv3, arXiv:2508.10104).

  Attributes:
    grid: (rows, columns) of patches, the last tokens; those before them stay.
    base: ratio of the longest period to the shortest.
  """

  grid: tuple[int, int]
  base: float

  def __call__(self, x: Float[Array, 'B L N H']) -> Float[Array, 'B L N H']:
    """Returns the heads, rotated; raises a ValueError unless 4 divides H."""
    cos, sin = _rotations(self.grid, self.base, x.shape[-1])
    prefix = x.shape[1] - len(cos)
    patches = x[:, prefix:].astype(jnp.float32)
    first, second = jnp.split(patches, 2, axis=-1)
    quarter_turn = jnp.concatenate([-second, first], axis=-1)
    rotated = patches * cos[:, None] + quarter_turn * sin[:, None]
    return jnp.concatenate([x[:, :prefix], rotated.astype(x.dtype)], axis=1)


@functools.lru_cache(maxsize=8)
def _rotations(
  grid: tuple[int, int], base: float, width: int
) -> tuple[Float[np.ndarray, 'L H'], Float[np.ndarray, 'L H']]:
  """Returns cosines and sines: a quarter of the width a coordinate, twice."""
  if width % 4:
    raise ValueError(f'Heads have width {width}, must be a multiple of 4.')
  frequencies = base ** -(np.arange(width // 4) * (4 / width))
  rows, columns = ((np.arange(n) + 0.5) / n * 2 - 1 for n in grid)
  places = np.stack(np.meshgrid(rows, columns, indexing='ij'), -1)
  angles = 2 * np.pi * places.reshape(-1, 2, 1) * frequencies
  angles = np.tile(angles.reshape(len(angles), -1), 2)
  return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
