"""Optimizers that see one block at a time where blocks are stacked."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import optax

from vit_jax.models import blocks

Depths = Mapping[str, int]


def apply(tx: optax.GradientTransformation) -> optax.GradientTransformation:
  """Applies a transformation to one block at a time where blocks are stacked.

  `scan_layers` then keeps the norms, rows and columns of each parameter, and the
  tree of the state. The transformation must treat each parameter alone.
  """

  def over_depth(function: Callable[..., Any], trees: Any, like: Any) -> Any:
    depths = blocks.depths(trees[0])
    if not depths:
      return function(*trees)
    # Two towers may differ in depth. Then one block stands for each stack of
    # another depth, and its results are dropped.
    results = {
      depth: jax.vmap(
        function, _axes(trees, depth, depths), _axes(like, depth, depths)
      )(*_without_others(trees, depth, depths))
      for depth in sorted(set(depths.values()))
    }
    return _merge(results, depths)

  def init(params: Any) -> Any:
    return over_depth(tx.init, (params,), jax.eval_shape(tx.init, params))

  def update(updates: Any, state: Any, params: Any = None) -> Any:
    trees = (updates, state, params)
    return over_depth(tx.update, trees, (updates, state))

  return optax.GradientTransformation(init, update)


def _depth(path: tuple[Any, ...], depths: Depths) -> int | None:
  """Returns the depth of an array; its path ends with that of a parameter."""
  found = f'/{blocks.stack_of(path)}'
  return next((n for k, n in depths.items() if found.endswith(f'/{k}')), None)


def _axes(tree: Any, depth: int, depths: Depths) -> Any:
  """Returns 0 for arrays of this depth, None for others."""
  return jax.tree_util.tree_map_with_path(
    lambda path, _: 0 if _depth(path, depths) == depth else None, tree
  )


def _without_others(tree: Any, depth: int, depths: Depths) -> Any:
  """Returns a tree with only the first block of stacks of another depth."""
  return jax.tree_util.tree_map_with_path(
    lambda path, x: x if _depth(path, depths) in (None, depth) else x[0], tree
  )


def _merge(results: Mapping[int, Any], depths: Depths) -> Any:
  """Returns a tree whose arrays come from the result for their depth."""

  def choose(path: tuple[Any, ...], *arrays: Any) -> Any:
    by_depth: dict[int | None, Any] = dict(zip(results, arrays, strict=True))
    return by_depth.get(_depth(path, depths), arrays[0])

  return jax.tree_util.tree_map_with_path(choose, *results.values())
