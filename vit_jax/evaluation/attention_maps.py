"""What a model attends to, and what its first layer holds, as arrays.

The pictures of Figures 6 and 7 of the paper (arXiv:2010.11929) are drawn of these
by `vit-jax attention`.
"""

import jax.numpy as jnp
from jaxtyping import ArrayLike, Float
import numpy as np

Weights = Float[ArrayLike, 'layers heads L L']
Map = Float[np.ndarray, 'rows columns']


def rollout(weights: Weights) -> Float[ArrayLike, 'L L']:
  """Returns how much of each token at the input is in each at the output.

  Attention rollout (arXiv:2005.00928, Sec. 3; the paper's App. D.8): the weights,
  averaged over the heads, and half an identity for the residual connection,
  multiplied layer by layer. Rows sum to 1.
  """
  identity = jnp.eye(weights.shape[-1], dtype=jnp.float32)
  mixing = identity
  for layer in weights.mean(axis=1):
    mixing = (layer + identity) / 2 @ mixing
  return mixing


def patch_map(
  rows: Float[ArrayLike, '*n L L'], grid: tuple[int, int]
) -> Float[ArrayLike, '*n rows columns']:
  """Returns the part of each patch in what the classifier sees.

  Args:
    rows: weights, or a `rollout` of them; of the class token, if there is one,
      its row is taken, otherwise the mean over all.
    grid: (rows, columns) of patches.
  """
  prefix = _prefix(rows.shape[-1], grid)
  row = rows[..., 0, prefix:] if prefix else rows.mean(axis=-2)
  return row.reshape(*row.shape[:-1], *grid)


def _prefix(length: int, grid: tuple[int, int]) -> int:
  return length - grid[0] * grid[1]


def mean_distances(
  weights: Weights,
  grid: tuple[int, int],
  pixels: tuple[int | float, int | float],
) -> Float[np.ndarray, 'layers heads']:
  """Returns how far heads look, in pixels (Sec. 4.5, Fig. 7, App. D.7).

  The distance between a patch and those it attends to, weighted by how much, and
  averaged over the patches. The class token is left out.

  Args:
    weights: of one image.
    grid: (rows, columns) of patches.
    pixels: (height, width) of a patch.
  """
  prefix = _prefix(weights.shape[-1], grid)
  between = weights[..., prefix:, prefix:]
  y, x = np.mgrid[: grid[0], : grid[1]].reshape(2, -1)
  y, x = y * pixels[0], x * pixels[1]
  distances = np.hypot(y[:, None] - y, x[:, None] - x)
  total = between.sum(axis=-1)
  return ((between * distances).sum(axis=-1) / total).mean(axis=-1)


def position_similarities(
  posemb: Float[np.ndarray, '1 L D'], grid: tuple[int, int]
) -> Float[np.ndarray, 'rows columns rows columns']:
  """Returns cosines between the position embeddings of patches (Fig. 7)."""
  x = posemb[0, _prefix(posemb.shape[1], grid) :]
  x = x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)
  return (x @ x.T).reshape(*grid, *grid)


def first_filters(
  kernel: Float[np.ndarray, 'h w C D'], count: int = 28
) -> Float[np.ndarray, 'n h w C']:
  """Returns principal components of the patch embedding (Fig. 7), in [0, 1].

  Args:
    kernel: of the first layer.
    count: how many, of which there may be fewer.
  """
  filters = kernel.reshape(-1, kernel.shape[-1]).T
  centred = filters - filters.mean(axis=0)
  components = np.linalg.svd(centred, full_matrices=False)[2][:count]
  components = components.reshape(-1, *kernel.shape[:3])
  largest = np.abs(components).max(axis=(1, 2, 3), keepdims=True)
  return 0.5 + components / (2 * largest)
