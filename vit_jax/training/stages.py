"""The stages of a run: frozen parameters, optimizer, learning rate."""

from collections.abc import Callable, Sequence
import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array
import ml_collections
import optax

from vit_jax import models
from vit_jax.runtime import sharding
from vit_jax.training import freeze as freeze_lib
from vit_jax.training import optimizers
from vit_jax.training import resolve
from vit_jax.training import state as state_lib
from vit_jax.training import update

Step = Callable[..., tuple[state_lib.TrainState, dict[str, Array]]]


@dataclasses.dataclass(frozen=True)
class Stage:
  """Steps with one optimizer.

  Attributes:
    before: number of steps of the run before this stage.
    last: its last step, counted from the start of the run.
    like: shapes, dtypes and shardings of its state.
    step: `update.train_step` with its settings, jitted; takes state, batch, key
      and the parameters of a teacher, if there is one, and donates the state.
    tx: the optimizer of the parameters that are not frozen.
    schedule: maps a step of the stage to its learning rate.
    freeze: patterns of the frozen parameters.
  """

  before: int
  last: int
  like: state_lib.TrainState
  step: Step
  tx: optax.GradientTransformation
  schedule: optax.Schedule
  freeze: tuple[str, ...]

  def learning_rate(self, step: int) -> Any:
    """Returns the learning rate of a step of the run; the first step is 1.

    The official code logs the rate of the next step instead.
    """
    return self.schedule(step - 1 - self.before)

  def enter(self, state: state_lib.TrainState) -> state_lib.TrainState:
    """Returns a state with a new optimizer state, at the start of this stage."""
    shardings = jax.tree.map(lambda x: x.sharding, self.like.opt_state)
    init = jax.jit(self.tx.init, out_shardings=shardings)
    trained, _ = freeze_lib.split(state.params, self.freeze)
    return dataclasses.replace(state, opt_state=init(trained))

  def new_state(self, params: dict[str, Any]) -> state_lib.TrainState:
    """Returns the state of step 0, placed on the devices as `like` is."""
    shardings = jax.tree.map(lambda x: x.sharding, self.like)
    params = jax.device_put(params, shardings.params)
    # A step donates its state, so no array may occur twice.
    ema = jax.tree.map(jnp.copy, params) if self.like.ema else ()
    step = jax.device_put(jnp.zeros((), jnp.int32), shardings.step)
    return self.enter(state_lib.TrainState(step, params, (), ema))


def make(
  run: resolve.Run,
  model: nn.Module,
  loss_fn: Callable[..., Any],
  image_shape: tuple[int, int, int],
  *,
  train_step: Step = update.train_step,
  locked: Sequence[str] = (),
  extend: Callable[[Any], Any] = lambda params: params,
) -> list[Stage]:
  """Returns the stages of a run; one if its config sets none.

  `train_step` is `update.train_step` or a function that calls it, with `loss_fn`.
  `locked` has patterns of parameters to freeze in all stages. `extend` maps the
  shapes of the model's parameters to those of the parameters of a state.
  """
  config, stages, before = run.config, [], 0
  params = extend(models.abstract_params(model, image_shape))
  for stage in run.stages:
    tx, schedule = optimizer(stage, params)
    freeze = (*locked, *stage.freeze)
    like = abstract_state(
      params, tx, run.mesh, freeze, has_ema=config.ema_decay > 0
    )
    step = functools.partial(
      train_step,
      loss_fn=loss_fn,
      tx=tx,
      accum_steps=config.accum_steps,
      freeze=freeze,
      ema_decay=config.ema_decay,
    )
    stages.append(
      Stage(
        before=before,
        last=before + stage.total_steps,
        like=like,
        step=jit_step(step, like, run.mesh),
        tx=tx,
        schedule=schedule,
        freeze=freeze,
      )
    )
    before += stage.total_steps
  return stages


def jit_step(
  step: Step, like: state_lib.TrainState, mesh: jax.sharding.Mesh
) -> Step:
  """Returns a step jitted for the shardings of `like`; it donates the old state."""
  shardings = jax.tree.map(lambda x: x.sharding, like)
  return jax.jit(
    sharding.in_mesh(mesh, step),
    donate_argnums=0,
    out_shardings=(shardings, sharding.replicated(mesh)),
  )


def abstract_state(
  params: dict[str, Any],
  tx: optax.GradientTransformation,
  mesh: jax.sharding.Mesh,
  freeze: Sequence[str] = (),
  has_ema: bool = False,
) -> state_lib.TrainState:
  """Returns shapes, dtypes and shardings of a state without computing it.

  `params` are those of `models.abstract_params`, `freeze` has the patterns of
  `freeze.split`.
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

  An array of the optimizer whose path ends with that of a parameter of the same
  shape is sharded like it. All others, such as the factored moments of Adafactor,
  are small and replicated.
  """
  params = sharding.place(mesh, state.params)
  by_path = dict(jax.tree_util.tree_leaves_with_path(params))

  def placed(path: tuple[Any, ...], x: Any) -> jax.ShapeDtypeStruct:
    ends = (path[start:] for start in range(len(path)))
    like = next((by_path[end] for end in ends if end in by_path), None)
    where = sharding.replicated(mesh)
    if like is not None and like.shape == x.shape:
      where = like.sharding
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where)

  return jax.tree_util.tree_map_with_path(placed, state)


def optimizer(
  config: ml_collections.ConfigDict, params: dict[str, Any]
) -> tuple[optax.GradientTransformation, optax.Schedule]:
  """Returns the optimizer of a stage and its schedule.

  `params` has the shapes of all parameters, including the frozen ones.
  """
  schedule = optimizers.create_learning_rate_schedule(
    config.total_steps,
    config.base_lr,
    config.decay_type,
    config.warmup_steps,
    timescale=config.timescale,
    cooldown_steps=config.cooldown_steps,
  )
  scales = None
  if config.layer_decay != 1:
    scales = optimizers.layer_scales(params, config.layer_decay)
  tx = optimizers.create_optimizer(
    schedule,
    optimizer=config.optimizer,
    momentum=config.momentum,
    beta2=config.beta2,
    optim_dtype=config.optim_dtype,
    grad_norm_clip=config.grad_norm_clip,
    weight_decay=config.weight_decay,
    weight_decay_on=config.weight_decay_on,
    layer_scales=scales,
    sam_rho=config.sam_rho,
  )
  return tx, schedule


def at(stages: Sequence[Stage], step: int) -> Stage:
  """Returns the stage that `step` belongs to."""
  return next((s for s in stages if step <= s.last), stages[-1])
