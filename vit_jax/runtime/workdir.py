"""Where the files of a run lie, and the lock that keeps a second run out."""

from collections.abc import Iterator
import contextlib
import dataclasses
import errno
import os

import filelock
import jax

from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import storage

_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class _Inside:
  """The path of a file or folder in a workdir."""

  def __init__(self, name: str):
    self._name = name

  def __get__(self, workdir: 'Workdir', owner: type) -> storage.Path:
    return workdir.folder / self._name


@dataclasses.dataclass(frozen=True)
class Workdir:
  """The folder of a run, or its address in a bucket, and what lies there."""

  folder: storage.Path

  config = _Inside('config.json')  # All settings, with nothing left open.
  dataset = _Inside('dataset.json')  # Fingerprints of both splits.
  teacher = _Inside('teacher.json')  # Which model was the teacher.
  labels = _Inside('labels.txt')  # Class names, in the order of the logits.
  environment = _Inside('environment.json')  # Versions, devices, command.
  checkpoints = _Inside('checkpoints')  # A folder for each step.
  metrics = _Inside('metrics.jsonl')  # A line for each step that was logged.
  loggers = _Inside('loggers.json')  # The run at each logging service.
  profile = _Inside('profile')  # Traces of steps.
  evaluation = _Inside('evaluation.json')  # What `evaluate` measured.
  fitted = _Inside('fitted.json')  # What held-out images decided at the end.
  artifact = _Inside('artifact')  # The trained model.
  artifact_ema = _Inside('artifact_ema')  # The moving average of the model.
  report = _Inside('report.html')  # The page about the run.
  lock = _Inside('.lock')  # Held while a run writes.

  def __str__(self) -> str:
    return str(self.folder)

  def __fspath__(self) -> str:
    return os.fspath(self.folder)


def at(path: os.PathLike | str) -> Workdir:
  """Returns the workdir at a local path or an address such as gs://bucket/run."""
  return Workdir(storage.as_path(path))


def find_run(path: str) -> Workdir | None:
  """Returns the workdir at `path` if a run wrote its settings there, else None."""
  if not storage.may_be_workdir(path):
    return None
  workdir = at(path)
  return workdir if 'dataset' in files.read_json(workdir.config) else None


@contextlib.contextmanager
def guarded(workdir: Workdir) -> Iterator[None]:
  """Keeps other runs out, and turns a full or read-only disk into one line.

  The lock ends with the process, however that ends. Buckets have no lock.
  """
  lock = None
  try:
    if not storage.is_address(workdir) and jax.process_index() == 0:
      workdir.folder.mkdir(parents=True, exist_ok=True)
      lock = filelock.FileLock(os.fspath(workdir.lock), timeout=0)
      lock.acquire()
    yield
  except filelock.Timeout as e:
    raise errors.UserError(
      f'Another run is at work in {workdir}. Wait for its end, stop it, or'
      f' choose another workdir.'
    ) from e
  except OSError as e:
    reason = f'{e.strerror or e}.'
    if not _concerns(e, workdir):
      name = f'{e.filename}: ' if e.filename else ''
      raise errors.UserError(f'{name}{reason}') from e
    raise errors.UserError(
      f'{e.filename or workdir}: {reason} Make room or choose another workdir.'
      f' The newest whole checkpoint stays; the same command resumes.'
    ) from e
  finally:
    if lock is not None and lock.is_locked:
      lock.release()


def _concerns(error: OSError, workdir: Workdir) -> bool:
  """Whether an error is about writing the workdir, not about reading data."""
  if error.errno in _DISK or storage.is_address(workdir):
    return True
  if not isinstance(error.filename, str):
    return False
  path, folder = os.path.abspath(error.filename), os.path.abspath(workdir)
  # A folder above the workdir may be the one that cannot be made.
  return os.path.commonpath([path, folder]) in (path, folder)
