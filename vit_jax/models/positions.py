"""Fixed position embeddings."""

from jaxtyping import Float
import numpy as np

_TEMPERATURE = 10_000


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
