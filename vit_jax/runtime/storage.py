"""Paths given by users: files and folders, or addresses such as gs://bucket/run.

Only this module turns text from flags, settings and callers into paths, so that no
address becomes a local folder named `gs:`.
"""

from collections.abc import Iterator
import contextlib
import glob
import os
import pathlib
import re
import shutil
import tempfile
import time
from typing import TypeAlias
import uuid

from etils import epath

from vit_jax.runtime import errors

Path: TypeAlias = pathlib.Path | epath.Path

_SCHEME = re.compile(r'[a-zA-Z][a-zA-Z0-9+.-]+:/')

_DAY = 24 * 60 * 60


def is_address(path: os.PathLike | str) -> bool:
  """Whether a path is an address, not a file or folder of this machine."""
  return _SCHEME.match(os.fspath(path)) is not None


def as_path(path: os.PathLike | str) -> Path:
  """Returns a path object for an address, or a local path with `~` expanded."""
  return epath.Path(path) if is_address(path) else local_path(path)


def local_path(path: os.PathLike | str) -> pathlib.Path:
  """Returns a path of this machine, with `~` expanded."""
  if is_address(path):
    raise errors.UserError(
      f'{path} is an address: this must be a file or folder of this machine.'
    )
  return pathlib.Path(os.path.expanduser(path))


def packaged(inside: str, beside: str) -> pathlib.Path:
  """Returns a folder that comes with the package.

  A wheel installs it as `inside` in the package; a clone has it as `beside` next
  to the package.
  """
  package = pathlib.Path(__file__).parents[1]
  folder = package / inside
  return folder if folder.is_dir() else package.parent / beside


def may_be_workdir(path: str) -> bool:
  """Whether a path is on this machine or in a bucket that runs are written to."""
  return not is_address(path) or path.startswith('gs://')


def make_workdir(workdir: str) -> Path:
  """Makes a folder, or checks that a bucket can be written."""
  if not may_be_workdir(workdir):
    raise errors.UserError(
      f'workdir={workdir} must be a folder or gs://BUCKET/FOLDER.'
    )
  path = as_path(workdir)
  try:
    if not is_address(workdir):
      path.mkdir(parents=True, exist_ok=True)
      return path
    # Buckets have no folders that could be made.
    probe = path / f'.probe-{uuid.uuid4().hex}'
    probe.write_text('')
    probe.unlink()
  except Exception as e:  # Each storage library has its own.
    text = errors.first_line(e)
    reason = getattr(e, 'strerror', None) or f'{type(e).__name__}: {text}'
    if isinstance(e, ImportError):
      reason = f"{text}; try pip install 'vit_jax[gcs]'"
    raise errors.UserError(
      f'workdir={workdir} cannot be made: {reason}.'
    ) from e
  return path


def write_bytes(data: bytes, path: Path) -> None:
  """Writes a file, whole or not at all.

  Readers, and runs that resume after a kill, see the old content or the new. In a
  bucket, an object appears only when it is complete.

  Raises:
    OSError: if it cannot be written; it names `path`.
  """
  if is_address(path):
    path.write_bytes(data)
    return
  path = pathlib.Path(path)
  remove_leftovers(path)
  temporary = path.with_name(f'.{path.name}.{os.getpid()}.tmp')
  try:
    with open(temporary, 'wb') as f:
      f.write(data)
      f.flush()
      os.fsync(f.fileno())
    os.replace(temporary, path)
  except OSError as e:  # Messages must name the target.
    raise OSError(e.errno, e.strerror, os.fspath(path)) from e
  finally:
    temporary.unlink(missing_ok=True)


def remove_leftovers(path: pathlib.Path) -> None:
  """Removes temporary files of killed processes that were writing `path`.

  Younger than a day, they may belong to a live process, of another host too.
  """
  for old in path.parent.glob(f'.{glob.escape(path.name)}.*.tmp'):
    with contextlib.suppress(OSError):
      if time.time() - old.stat().st_mtime > _DAY:
        shutil.rmtree(old) if old.is_dir() else old.unlink()


def upload(folder: Path, address: Path, last: str = '') -> None:
  """Copies the files of a flat folder to an address, the file `last` at the end."""
  address.mkdir(parents=True, exist_ok=True)
  for file in sorted(folder.iterdir(), key=lambda p: (p.name == last, p.name)):
    (address / file.name).write_bytes(file.read_bytes())


@contextlib.contextmanager
def local_copy(folder: os.PathLike | str) -> Iterator[pathlib.Path]:
  """Provides a local folder, or the files of an address in a temporary one."""
  if not is_address(folder):
    yield pathlib.Path(folder)
    return
  with tempfile.TemporaryDirectory() as name:
    temporary = pathlib.Path(name)
    for file in as_path(folder).iterdir():
      if file.is_file():
        (temporary / file.name).write_bytes(file.read_bytes())
    yield temporary
