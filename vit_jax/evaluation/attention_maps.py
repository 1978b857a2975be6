"""Attention and first layer of a model, as arrays.

`vit-jax attention` draws them, as Figures 6 and 7 of the paper (arXiv:2010.11929).
"""

import jax.numpy as jnp
from jaxtyping import Array, Float
import numpy as np

AnyArray = Array | np.ndarray
Weights = Float[AnyArray, 'layers heads L L']
Map = Float[np.ndarray, 'rows columns']
Grid = tuple[int, int]  # (rows, columns) of patches.


def rollout(weights: Weights) -> Float[Array, 'L L']:
  """Returns the share of each input token in each output token; rows sum to 1.

  Attention rollout (arXiv:2005.00928, Sec. 3; the paper's App. D.8): weights are
  averaged over the heads, mixed half and half with an identity for the residual
  connection, and multiplied layer by layer.
  """
  identity = jnp.eye(weights.shape[-1], dtype=jnp.float32)
  mixing = identity
  for layer in weights.mean(axis=1):
    mixing = (layer + identity) / 2 @ mixing
  return mixing


def patch_map(
  rows: Float[AnyArray, '*n L L'], grid: Grid, has_class_token: bool
) -> Float[AnyArray, '*n rows columns']:
  """Returns the share of each patch in the class token, or in the mean of all.

  `rows` are attention weights or their `rollout`.
  """
  prefix = _prefix(rows.shape[-1], grid)
  row = rows[..., 0, :] if has_class_token else rows[..., prefix:, :].mean(-2)
  row = row[..., prefix:]
  return row.reshape(*row.shape[:-1], *grid)


def _prefix(length: int, grid: Grid) -> int:
  return length - grid[0] * grid[1]


def mean_distances(
  weights: Weights,
  grid: Grid,
  pixels: tuple[int | float, int | float],
) -> Float[AnyArray, 'layers heads']:
  """Returns how far heads look, in pixels (Sec. 4.5, Fig. 7, App. D.7).

  The distance between a patch and those it attends to, weighted by attention and
  averaged over the patches of one image; `pixels` is the (height, width) of a
  patch. Other tokens do not count.
  """
  prefix = _prefix(weights.shape[-1], grid)
  between = weights[..., prefix:, prefix:]
  y, x = np.mgrid[: grid[0], : grid[1]].reshape(2, -1)
  y, x = y * pixels[0], x * pixels[1]
  distances = np.hypot(y[:, None] - y, x[:, None] - x)
  total = between.sum(axis=-1)
  return ((between * distances).sum(axis=-1) / total).mean(axis=-1)


def position_similarities(
  posemb: Float[np.ndarray, '1 L D'], grid: Grid
) -> Float[np.ndarray, 'rows columns rows columns']:
  """Returns cosines between the position embeddings of patches (Fig. 7)."""
  x = posemb[0, _prefix(posemb.shape[1], grid) :]
  x = x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)
  return (x @ x.T).reshape(*grid, *grid)


def first_filters(
  kernel: Float[np.ndarray, 'h w C D'], count: int = 28
) -> Float[np.ndarray, 'n h w C']:
  """Returns up to `count` principal components of the first kernel, in [0, 1]."""
  filters = kernel.reshape(-1, kernel.shape[-1]).T
  centred = filters - filters.mean(axis=0)
  components = np.linalg.svd(centred, full_matrices=False)[2][:count]
  components = components.reshape(-1, *kernel.shape[:3])
  largest = np.abs(components).max(axis=(1, 2, 3), keepdims=True)
  return 0.5 + components / (2 * largest)
