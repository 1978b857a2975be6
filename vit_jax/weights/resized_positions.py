"""Position embeddings for another grid of patches, as each family resizes them."""

from collections.abc import Callable
import functools

from jaxtyping import Float
import numpy as np

from vit_jax.runtime import errors

Weights = Float[np.ndarray, 'new old']


def resize(
  embeddings: Float[np.ndarray, 'R C D'], grid: tuple[int, int], method: str
) -> Float[np.ndarray, '_ _ D']:
  """Returns embeddings of a grid of (rows, columns).

  Args:
    embeddings: those of another grid.
    grid: the new rows and columns.
    method: a key of `METHODS`.

  Raises:
    errors.UserError: if the method is unknown.
  """
  if method not in METHODS:
    raise errors.UserError(
      f'config.model.posemb_resize is {method!r}, must be one of'
      f' {", ".join(METHODS)}.'
    )
  return METHODS[method](np.asarray(embeddings), grid)


def _zoom(
  embeddings: Float[np.ndarray, 'R C D'], grid: tuple[int, int]
) -> Float[np.ndarray, '_ _ D']:
  """Aligns corners, as the official code does; `jax.image.resize` does not."""
  from scipy import ndimage  # Imported late: it takes time.

  zoom = (grid[0] / embeddings.shape[0], grid[1] / embeddings.shape[1], 1)
  return ndimage.zoom(embeddings, zoom, order=1)


def _interpolated(
  embeddings: Float[np.ndarray, 'R C D'],
  grid: tuple[int, int],
  weights: Callable[[int, int], Weights],
) -> Float[np.ndarray, '_ _ D']:
  rows, columns = map(weights, grid, embeddings.shape[:2])
  resized = np.einsum('ij,jkd,lk->ild', rows, embeddings, columns)
  return resized.astype(embeddings.dtype)


def _cubic(x: np.ndarray, a: float) -> np.ndarray:
  """Cubic convolution (Keys, 1981); `a` is its slope at 1."""
  x = np.abs(x)
  near = ((a + 2) * x - (a + 3)) * x**2 + 1
  far = a * (((x - 5) * x + 8) * x - 4)
  return np.where(x < 1, near, np.where(x < 2, far, 0))


def _triangle(x: np.ndarray) -> np.ndarray:
  return np.maximum(1 - np.abs(x), 0)


def _bicubic_weights(new: int, old: int) -> Weights:
  """PyTorch's without antialias: outside, the values at the edge continue."""
  centres = (np.arange(new) + 0.5) * old / new - 0.5
  taps = np.floor(centres)[:, None] + np.arange(-1, 3)
  values = _cubic(taps - centres[:, None], -0.75)
  weights = np.zeros((new, old))
  places = np.clip(taps, 0, old - 1).astype(int)
  np.add.at(weights, (np.arange(new)[:, None], places), values)
  return weights


def _antialiased_weights(
  new: int,
  old: int,
  kernel: Callable[[np.ndarray], np.ndarray],
  support: float,
) -> Weights:
  """PyTorch's and Pillow's: outside, there is nothing.

  Args:
    new: number of rows or columns.
    old: their number before.
    kernel: the filter, which becomes wider where there are fewer than before.
    support: where it becomes 0.
  """
  scale = old / new
  width = max(scale, 1)
  centres = (np.arange(new) + 0.5) * scale
  first = np.floor(centres - support * width + 0.5).clip(0)
  end = np.floor(centres + support * width + 0.5).clip(None, old)
  places = np.arange(old)
  values = kernel((places + 0.5 - centres[:, None]) / width)
  is_near = (places >= first[:, None]) & (places < end[:, None])
  weights = np.where(is_near, values, 0)
  return weights / weights.sum(axis=1, keepdims=True)


METHODS: dict[str, Callable[..., np.ndarray]] = {
  # The official code.
  'zoom': _zoom,
  # DINOv2, and most others in transformers.
  'bicubic': functools.partial(_interpolated, weights=_bicubic_weights),
  # DINOv2 with registers, timm, open_clip.
  'bicubic_antialias': functools.partial(
    _interpolated,
    weights=functools.partial(
      _antialiased_weights, kernel=functools.partial(_cubic, a=-0.5), support=2
    ),
  ),
  # SigLIP 2.
  'bilinear_antialias': functools.partial(
    _interpolated,
    weights=functools.partial(
      _antialiased_weights, kernel=_triangle, support=1
    ),
  ),
}
