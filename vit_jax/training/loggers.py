"""Loggers of metrics: TensorBoard, Weights & Biases, MLflow.

A resumed run continues its run of the service, whose id is in the workdir.
"""

from collections.abc import Callable, Mapping, Sequence
import importlib
import os
import time
from typing import Any, Protocol, runtime_checkable

import flax.traverse_util
from tensorboardX import event_file_writer
from tensorboardX import summary
from tensorboardX.proto import event_pb2

from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import workdir as workdir_lib

_MAX_PARAM = 500  # Characters of a setting that MLflow keeps.


@runtime_checkable
class Logger(Protocol):
  """Writes the metrics of a step."""

  def write(self, step: int, values: Mapping[str, float]) -> None: ...

  def flush(self) -> None: ...

  def close(self) -> None: ...


class TensorBoard:
  """Writes `events.out.tfevents.*` without a queue.

  tensorboardX's own writer has a thread and a queue: on a full disk the thread dies,
  and the full queue then blocks the run.
  """

  def __init__(self, folder: os.PathLike | str, first_step: int):
    self._writer = event_file_writer.EventsWriter(
      os.path.join(folder, 'events')
    )
    self.flush, self.close = self._writer.flush, self._writer.close
    # Hides later steps that a killed run wrote.
    start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
    self._add(first_step, session_log=start)

  def write(self, step: int, values: Mapping[str, float]) -> None:
    for name, value in values.items():
      self._add(step, summary=summary.scalar(name, value))
    self.flush()

  def _add(self, step: int, **what: Any) -> None:
    event = event_pb2.Event(wall_time=time.time(), step=step, **what)
    self._writer.write_event(event)


class WandB:
  """Logs to Weights & Biases, configured by WANDB_PROJECT and similar variables."""

  def __init__(self, workdir: workdir_lib.Workdir, config: Mapping[str, Any]):
    wandb = _import('wandb')
    self._run = wandb.init(
      name=workdir.folder.name,
      config=dict(config),
      id=_run_of(workdir, 'wandb'),
      resume='allow',
    )
    _remember(workdir, 'wandb', self._run.id)

  def write(self, step: int, values: Mapping[str, float]) -> None:
    self._run.log(dict(values), step=step)

  def flush(self) -> None:
    """Does nothing: wandb writes in the background."""

  def close(self) -> None:
    self._run.finish()


class MLflow:
  """Logs to MLflow, configured by MLFLOW_TRACKING_URI and similar variables."""

  def __init__(self, workdir: workdir_lib.Workdir, config: Mapping[str, Any]):
    mlflow = _import('mlflow')
    self._client = mlflow.MlflowClient()
    name = os.environ.get('MLFLOW_EXPERIMENT_NAME', 'vit_jax')
    experiment = mlflow.set_experiment(name)
    self._id = _run_of(workdir, 'mlflow')
    if self._id is None:
      run = self._client.create_run(
        experiment.experiment_id, run_name=workdir.folder.name
      )
      self._id = run.info.run_id
      flat = flax.traverse_util.flatten_dict(dict(config), sep='.')
      for key, value in flat.items():
        self._client.log_param(self._id, key, str(value)[:_MAX_PARAM])
      _remember(workdir, 'mlflow', self._id)
    else:
      self._client.set_terminated(self._id, 'RUNNING')

  def write(self, step: int, values: Mapping[str, float]) -> None:
    for name, value in values.items():
      self._client.log_metric(self._id, name, value, step=step)

  def flush(self) -> None:
    """Does nothing: `write` sends each metric at once."""

  def close(self) -> None:
    self._client.set_terminated(self._id)


_SERVICES: dict[str, Callable[..., Logger]] = {'wandb': WandB, 'mlflow': MLflow}


def make(
  names: Sequence[str],
  workdir: workdir_lib.Workdir,
  folder: os.PathLike | str,
  config: Mapping[str, Any],
  first_step: int,
) -> list[Logger]:
  """Opens the loggers with these names.

  The workdir keeps the ids of services. Files go to `folder`, which is local: not
  the workdir if that is in a bucket.

  Raises:
    errors.UserError: if a package is missing, or its service cannot start.
  """
  found: list[Logger] = []
  for name in names:
    if name == 'tensorboard':
      found.append(TensorBoard(folder, first_step))
      continue
    try:
      found.append(_SERVICES[name](workdir, config))
    except errors.UserError:
      raise
    except Exception as e:  # Each service has its own errors.
      reason = errors.first_line(e)
      raise errors.UserError(
        f'config.loggers has {name!r}, which cannot start: {reason}'
      ) from e
  return found


def _import(name: str) -> Any:
  try:
    return importlib.import_module(name)
  except ImportError as e:
    raise errors.UserError(
      f"config.loggers has {name!r}: pip install 'vit_jax[{name}]'."
    ) from e


def _run_of(workdir: workdir_lib.Workdir, service: str) -> str | None:
  return files.read_json(workdir.loggers).get(service)


def _remember(workdir: workdir_lib.Workdir, service: str, run: str) -> None:
  runs = {**files.read_json(workdir.loggers), service: run}
  files.write_json(runs, workdir.loggers)
