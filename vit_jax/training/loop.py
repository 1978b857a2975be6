"""The training loop: steps, metrics, evaluations, checkpoints."""

from collections.abc import Iterator
import contextlib
import dataclasses
import functools
from typing import Any

import jax
from jaxtyping import Array
import ml_collections
import numpy as np

from vit_jax.evaluation import evaluator
from vit_jax.runtime import errors
from vit_jax.runtime import hosts
from vit_jax.runtime import preemption
from vit_jax.training import metrics as metrics_lib
from vit_jax.training import profiler
from vit_jax.training import stages as stages_lib
from vit_jax.training import state as state_lib
from vit_jax.training import tasks

Metrics = dict[str, int | float]


class Reports:
  """Writes training metrics one interval late.

  Fetching the metrics of the last step would make the device wait for the host.
  """

  def __init__(
    self,
    writer: metrics_lib.Writer,
    progress: metrics_lib.Progress,
    saver: state_lib.Saver,
  ):
    self._writer, self._progress, self._saver = writer, progress, saver
    self._pending: tuple[int, dict[str, Any], Any, Metrics] | None = None

  def add(self, step: int, metrics: dict[str, Any], lr: Any) -> None:
    """Queues metrics that may not be computed yet; writes the previous ones."""
    speed = self._progress.speed()
    self.flush()
    self._pending = (step, metrics, lr, speed)

  def flush(self) -> None:
    """Writes pending metrics."""
    if self._pending is None:
      return
    (step, metrics, lr, speed), self._pending = self._pending, None
    values = {**self.check_finite(step, metrics), 'lr': float(lr)}
    self._progress.show(values)
    self._writer.write(step, {**values, **speed})

  def check_finite(self, step: int, metrics: dict[str, Any]) -> Metrics:
    """Fetches metrics; raises `errors.UserError` if one is not finite."""
    values = {k: float(v) for k, v in metrics.items()}
    if not np.all(np.isfinite(list(values.values()))):
      raise errors.UserError(
        f'Training diverged: at step {step} {values}. {self._saver.newest()}'
        f' Try a lower config.base_lr, more config.warmup_steps or a smaller'
        f' config.grad_norm_clip.'
      )
    return values


@dataclasses.dataclass(frozen=True)
class Parts:
  """Everything the loop needs, apart from settings and state."""

  task: tasks.Task
  batches: Iterator[dict[str, Array]]  # One for each remaining step.
  saver: state_lib.Saver
  writer: metrics_lib.Writer
  progress: metrics_lib.Progress
  profile: profiler.Profile


def run(
  config: ml_collections.ConfigDict, state: state_lib.TrainState, parts: Parts
) -> tuple[state_lib.TrainState, Metrics | None]:
  """Runs the remaining steps; returns the state and the last test metrics.

  Raises:
    errors.UserError: if the loss is not finite.
    KeyboardInterrupt: after Ctrl-C, once the state is saved.
    SystemExit: 0, after SIGTERM, once the state is saved.
  """
  reports = Reports(parts.writer, parts.progress, parts.saver)
  key, teacher = jax.random.key(config.seed), parts.task.teacher
  fixed = (teacher.put(),) if teacher else ()
  due = functools.partial(_due, last=config.total_steps)
  with (
    preemption.Preemption(int(state.step)) as preempted,
    parts.saver,
    parts.progress,
    parts.profile,
    hosts.noticing_losses(),  # Exits first, before `saver` waits for other hosts.
  ):
    previous, stage, test_metrics = None, None, None
    # Waiting for a batch raises it, in training and evaluation.
    with contextlib.suppress(preemption.StopRequestedError):
      test_metrics = _make_up(config, state, parts, reports)
      best = parts.saver.best()
      for step in range(int(state.step) + 1, config.total_steps + 1):
        batch = next(parts.batches)
        if enters := stage is None or step > stage.last:
          stage, state = _enter(parts.task, state, step)
        parts.profile.before(step)
        with jax.profiler.StepTraceAnnotation('train', step_num=step):
          state, metrics = stage.step(state, batch, key, *fixed)
        # At most one step waits for another, so that batches do not pile up.
        jax.block_until_ready(previous)
        parts.progress.completed(step - 1)
        if enters:  # Compiling took the time until now.
          parts.progress.reset(step - 1)
        previous = metrics
        parts.profile.after(step, metrics)
        if due(step, config.progress_every):
          reports.add(step, metrics, stage.learning_rate(step))
        stop = preempted.requested(step)
        save = due(step, config.checkpoint_every) or step == config.total_steps
        new_metrics = None
        # An evaluation could take longer than the time left before a stop.
        if due(step, config.eval_every) and not stop:
          reports.flush()
          reports.check_finite(step, metrics)
          test_metrics = new_metrics = _evaluate(parts, state, reports)
          quality = parts.saver.quality(test_metrics)
          save = save or quality > best
          best = max(best, quality)
        if save or stop:
          reports.flush()
          reports.check_finite(step, metrics)
          _save(parts, state, new_metrics)
        if stop:
          preempted.stop(step)
    reports.flush()
    if preempted.received and previous:
      reports.check_finite(int(state.step), previous)
      _save(parts, state, None)
  return state, test_metrics


def _enter(
  task: tasks.Task, state: state_lib.TrainState, step: int
) -> tuple[stages_lib.Stage, state_lib.TrainState]:
  """Returns the stage that `step` belongs to, and its state."""
  stage = stages_lib.at(task.stages, step)
  if step == stage.before + 1 > 1:
    state = stage.enter(state)
  return stage, state


def _evaluate(
  parts: Parts, state: state_lib.TrainState, reports: Reports
) -> Metrics:
  """Writes and returns the test metrics."""
  metrics = evaluator.with_average(parts.task.eval_fn, state.params, state.ema)
  losses = {k: v for k, v in metrics.items() if k.startswith('loss_test')}
  reports.check_finite(int(state.step), losses)
  parts.writer.write(int(state.step), metrics)
  parts.progress.reset(int(state.step))
  return metrics


def _make_up(
  config: ml_collections.ConfigDict,
  state: state_lib.TrainState,
  parts: Parts,
  reports: Reports,
) -> Metrics | None:
  """Evaluates a resumed state if a stop prevented its evaluation."""
  is_due = _due(int(state.step), config.eval_every, last=config.total_steps)
  if not (is_due and parts.saver.lacks_metrics):
    return None
  metrics = _evaluate(parts, state, reports)
  parts.saver.add_metrics(metrics)
  return metrics


def _save(
  parts: Parts, state: state_lib.TrainState, metrics: Metrics | None
) -> None:
  parts.writer.sync()
  parts.saver.save(state, metrics)
  parts.progress.reset(int(state.step))


def _due(step: int, every: int, *, last: int) -> bool:
  return every > 0 and (step % every == 0 or step == last)
