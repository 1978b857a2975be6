"""A training loop whose steps only count, for tests of what happens around them."""

import itertools
from unittest import mock

import flax.linen as nn
import jax.numpy as jnp
import optax

from vit_jax.configs import common
from vit_jax.data import batching
from vit_jax.training import loop
from vit_jax.training import metrics
from vit_jax.training import profiler
from vit_jax.training import stages
from vit_jax.training import state as state_lib
from vit_jax.training import tasks


def run(
  tmp_path,
  step=None,
  accuracies=(),
  batches=None,
  done=0,
  loss=None,
  **settings,
):
  """Runs a loop whose steps only count, after `done` of them.

  Evaluations have one of the `accuracies` after the other, and `loss`, if given.
  """
  config = common.get_config()
  config.update({'total_steps': 20, 'eval_every': 0} | settings)
  accuracies = iter(accuracies)
  losses = {} if loss is None else {'loss_test': loss}

  def count(state, batch, key):
    return state.replace(step=state.step + 1), {'train_loss': jnp.array(1.0)}

  state = state_lib.TrainState(jnp.array(done), {'w': jnp.ones(3)}, ())
  stage = stages.Stage(
    before=0,
    last=config.total_steps,
    like=state,
    step=step or count,
    tx=optax.identity(),
    schedule=lambda step: 0.1,
    freeze=(),
  )
  task = tasks.Task(
    data=mock.Mock(spec=batching.Data),
    model=nn.Dense(1),
    stages=[stage],
    initial_params=lambda weights: {},
    eval_fn=lambda params: {'accuracy_test': next(accuracies), **losses},
  )
  parts = loop.Parts(
    task=task,
    batches=batches or itertools.repeat({}),
    saver=state_lib.Saver(tmp_path, keep=1),
    writer=metrics.Writer(tmp_path, done + 1),
    progress=metrics.Progress(0, 20, 8, 1e9, None),
    profile=profiler.Profile(config.profile_steps, tmp_path / 'profile'),
  )
  return loop.run(config, state, parts)
