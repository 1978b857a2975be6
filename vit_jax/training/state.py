"""The state of a training run, and its checkpoints in the workdir."""

from collections.abc import Iterator, Mapping
import contextlib
import dataclasses
import math
import os
import textwrap
from typing import Any

from absl import logging
from etils import epath
from flax import struct
import jax
from jax.experimental import multihost_utils
import orbax.checkpoint as ocp

from vit_jax.evaluation import scores
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import storage
from vit_jax.runtime import workdir as workdir_lib

_policies = ocp.checkpoint_managers


_TEMPORARY = '.orbax-checkpoint-tmp'  # Name ending of incomplete checkpoints.
_WHOLE = 'commit_success.txt'
_METRICS = 'metrics'  # Name of orbax for a folder, and for the file in it.
_FULL = 'No space left on device'


@struct.dataclass
class TrainState:
  """Everything that a step changes; a tree of arrays."""

  step: Any
  params: Any
  opt_state: Any
  ema: Any = ()  # Moving average of the parameters; () for none.


def _not_whole(directory: epath.Path) -> list[epath.Path]:
  """Returns the incomplete checkpoints."""
  if not storage.is_address(directory):
    return list(directory.glob(f'*{_TEMPORARY}'))
  # A bucket cannot rename; a file marks complete checkpoints.
  if not directory.exists():
    return []
  steps = [path for path in directory.iterdir() if path.name.isdigit()]
  return [path for path in steps if not (path / _WHOLE).exists()]


def _differences(
  folder: epath.Path, like: TrainState, *, is_part: bool
) -> list[str]:
  """Returns a row for each array that is missing, unexpected or of another shape.

  With `is_part`, it ignores trees that `like` lacks, such as the optimizer's.
  """
  try:
    saved = ocp.PyTreeCheckpointHandler().metadata(folder)
  except (ValueError, TypeError, KeyError, OSError):
    return []  # Restoring this damaged checkpoint raises.
  have, want = _shapes(getattr(saved, 'item_metadata', saved)), _shapes(like)
  if not have:
    return []
  if is_part:
    trees = {name.split('/')[0] for name in want}
    have = {k: v for k, v in have.items() if k.split('/')[0] in trees}
  return [
    f'  {name}: {have.get(name, "none")} in the checkpoint,'
    f' {want.get(name, "none")} by this config'
    for name in sorted(have.keys() | want.keys())
    if have.get(name) != want.get(name)
  ]


def _shapes(tree: Any) -> dict[str, tuple[int, ...]]:
  """Returns the shapes of arrays by names such as 'params/head/bias'."""
  leaves = jax.tree_util.tree_leaves_with_path(tree)
  return {
    jax.tree_util.keystr(path, simple=True, separator='/'): tuple(x.shape)
    for path, x in leaves
    if hasattr(x, 'shape')
  }


class Saver:
  """Saves in the background; keeps the newest checkpoints and the best one.

  A checkpoint gets its final name only when it is complete.
  """

  def __init__(
    self,
    workdir: os.PathLike | str,
    keep: int = 2,
    metric: str = scores.ACCURACY,
    *,
    read_only: bool = False,
  ):
    """Opens the checkpoints of a workdir.

    Args:
      workdir: workdir of the run.
      keep: number of newest checkpoints to keep.
      metric: chooses the best one, which is kept too; one of `config.best_metric`.
      read_only: whether another run may write there.
    """
    self._metric = metric
    keep_best = _policies.BestN(
      get_metric_fn=self.quality,
      n=1,
      keep_checkpoints_without_metrics=False,
    )
    directory = epath.Path(workdir_lib.at(workdir).checkpoints)
    if not storage.is_address(directory):
      directory = directory.resolve()  # Orbax needs an absolute path.
    self._directory = directory
    if not read_only and jax.process_index() == 0:
      # Orbax would remove what a kill left in a thread that outlives errors.
      for path in _not_whole(self._directory):
        path.rmtree()
    self._manager = ocp.CheckpointManager(
      self._directory,
      options=ocp.CheckpointManagerOptions(
        best_fn=self.quality,  # Orbax writes metrics only if this is set.
        preservation_policy=_policies.AnyPreservationPolicy(
          [_policies.LatestN(keep), keep_best]
        ),
        read_only=read_only,
      ),
    )

  @property
  def latest_step(self) -> int | None:
    """The step of the newest checkpoint; None if there is none."""
    return self._manager.latest_step()

  def newest(self) -> str:
    """Returns a sentence about the newest checkpoint."""
    if self.latest_step is None:
      return 'There is no whole checkpoint yet.'
    return f'The newest whole checkpoint is of step {self.latest_step}.'

  def quality(self, metrics: Mapping[str, float]) -> float:
    """Returns the number that is largest for the best checkpoint."""
    return scores.quality(metrics, self._metric)

  def best(self) -> float:
    """Returns the largest quality of the checkpoints; -inf without one."""
    known = [self._manager.metrics(s) for s in self._manager.all_steps()]
    return max([self.quality(m) for m in known if m], default=-math.inf)

  def save(
    self, state: TrainState, metrics: dict[str, float] | None = None
  ) -> None:
    """Starts saving; returns as soon as the state may change."""
    step = int(state.step)
    if step == self.latest_step:
      return
    with self._saving():
      self._manager.save(
        step, args=ocp.args.StandardSave(state), metrics=metrics, force=True
      )

  @property
  def lacks_metrics(self) -> bool:
    """Whether there is a checkpoint, and the newest one has no metrics."""
    step = self.latest_step
    return step is not None and self._manager.metrics(step) is None

  def add_metrics(self, metrics: dict[str, float]) -> None:
    """Adds metrics to the newest checkpoint, which has none."""
    folder = self._directory / str(self.latest_step) / _METRICS
    if jax.process_index() == 0:
      with self._saving():
        folder.mkdir(exist_ok=True)
        files.write_json(metrics, folder / _METRICS)
    multihost_utils.sync_global_devices('metrics of a checkpoint')
    self._manager.reload()

  @contextlib.contextmanager
  def _saving(self) -> Iterator[None]:
    """Turns errors of writing this or the previous checkpoint into one line."""
    try:
      yield
    except (OSError, ValueError) as e:
      text = errors.first_line(e)
      reason = _FULL if _FULL in str(e) else text
      raise errors.UserError(
        f'A checkpoint cannot be written to {self._directory}: {reason}.'
        f' {self.newest()} Make room, and the same command resumes.'
      ) from e

  def restore(self, like: TrainState) -> TrainState:
    """Returns the newest checkpoint.

    `like` has the expected shapes, dtypes and shardings.

    Raises:
      errors.UserError: if it has other settings or is damaged.
    """
    self._check_shapes(like)
    with self._reading():
      return self._manager.restore(
        self.latest_step, args=ocp.args.StandardRestore(like)
      )

  def restore_for_evaluation(self, like: TrainState) -> TrainState:
    """Returns the newest checkpoint without the state of the optimizer.

    `like` has an empty `opt_state`; errors are those of `restore`.
    """
    item = {'step': like.step, 'params': like.params, 'ema': like.ema}
    item = {name: tree for name, tree in item.items() if jax.tree.leaves(tree)}
    how = ocp.args.PyTreeRestore(
      item=item,
      restore_args=ocp.checkpoint_utils.construct_restore_args(item),
      partial_restore=True,
    )
    folder = self._directory / str(self.latest_step) / 'default'
    self._check_shapes(like, is_part=True)
    with (
      self._reading(),
      ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer,
    ):
      saved = checkpointer.restore(folder, args=how)
      return dataclasses.replace(like, **saved)

  def _check_shapes(self, like: TrainState, *, is_part: bool = False) -> None:
    """Raises `errors.UserError` if arrays of the newest checkpoint differ."""
    path = self._directory / str(self.latest_step)
    rows = _differences(path / 'default', like, is_part=is_part)
    if rows:
      raise errors.UserError(
        f'{path} does not fit this config. Arrays that differ: {len(rows)}.\n'
        + '\n'.join(rows[:5])
        + '\nUse the config it was made with, or another workdir.'
      )

  @contextlib.contextmanager
  def _reading(self) -> Iterator[None]:
    """Turns the errors of a damaged checkpoint into one line."""
    steps = sorted(self._manager.all_steps())
    try:
      yield
    except (ValueError, TypeError, KeyError, OSError) as e:
      hint = f'resume from step {steps[-2]}' if steps[1:] else 'start again'
      reason = textwrap.shorten(errors.first_line(e), 200)
      raise errors.UserError(
        f'{self._directory / str(steps[-1])} cannot be read: {reason} If it is'
        f' damaged, delete it to {hint}.'
      ) from e
    logging.info('Restored step %d from %s.', steps[-1], self._directory)

  def __enter__(self) -> 'Saver':
    return self

  def __exit__(self, *unused_error) -> None:
    self.close()

  def close(self) -> None:
    """Waits until everything is saved."""
    with self._saving():
      self._manager.wait_until_finished()
      self._manager.close()
