"""Shapes, dtypes and shardings of a state, without computing it."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from vit_jax.runtime import sharding
from vit_jax.training import freeze as freeze_lib
from vit_jax.training import state as state_lib


def state(
  params: dict[str, Any],
  tx: optax.GradientTransformation,
  mesh: jax.sharding.Mesh,
  freeze: Sequence[str] = (),
  has_ema: bool = False,
) -> state_lib.TrainState:
  """Returns shapes, dtypes and shardings of a state, without computing it.

  Args:
    params: the result of `models.abstract_params`.
    tx: the optimizer, of the parameters that are not frozen.
    mesh: the mesh of devices.
    freeze: patterns of `freeze.split`.
    has_ema: whether there is a moving average of the parameters.
  """
  trained, _ = freeze_lib.split(params, freeze)
  like = state_lib.TrainState(
    step=jax.ShapeDtypeStruct((), jnp.int32),
    params=params,
    opt_state=jax.eval_shape(tx.init, trained),
    ema=params if has_ema else (),
  )
  return place(mesh, like)


def place(
  mesh: sharding.Mesh | sharding.AbstractMesh, state: state_lib.TrainState
) -> state_lib.TrainState:
  """Returns the shapes and dtypes of a state with shardings.

  An array of the optimizer, whose path ends as that of a parameter does, is
  where that parameter is if it has its shape. Whatever else there is, such as
  the factored moments of Adafactor, is small and replicated.
  """
  params = sharding.place(mesh, state.params)
  by_path = dict(jax.tree_util.tree_leaves_with_path(params))

  def placed(path: tuple[Any, ...], x: Any) -> jax.ShapeDtypeStruct:
    ends = (path[start:] for start in range(len(path)))
    like = next((by_path[end] for end in ends if end in by_path), None)
    has_its_shape = like is not None and like.shape == x.shape
    where = like.sharding if has_its_shape else sharding.replicated(mesh)
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where)

  return jax.tree_util.tree_map_with_path(placed, state)
