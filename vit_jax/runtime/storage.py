"""Paths that people give: files and folders, or addresses, gs://bucket/run.

Whatever comes from a flag, a setting or a caller becomes a path here and nowhere
else, so that no address becomes a local folder named `gs:`.
"""

from collections.abc import Iterator
import contextlib
import os
import pathlib
import re
import tempfile
import uuid

from etils import epath

from vit_jax.runtime import errors

Path = pathlib.Path | epath.Path


_SCHEME = re.compile(r'[a-zA-Z][a-zA-Z0-9+.-]+:/')


def is_address(path: os.PathLike | str) -> bool:
  """Whether a path is an address, not a file or folder of this machine."""
  return _SCHEME.match(os.fspath(path)) is not None


def as_path(path: os.PathLike | str) -> Path:
  """Returns what reads and writes at a path."""
  return epath.Path(path) if is_address(path) else pathlib.Path(path)


def local_path(path: os.PathLike | str) -> pathlib.Path:
  """Returns the path of a file or folder of this machine, `~` being the home.

  Raises:
    errors.UserError: if it is an address.
  """
  if is_address(path):
    raise errors.UserError(
      f'{path} is an address: this must be a file or folder of this machine.'
    )
  return pathlib.Path(path).expanduser()


def packaged(inside: str, beside: str) -> pathlib.Path:
  """Returns a folder that comes with the package.

  Args:
    inside: its name in the package, as a wheel installs it.
    beside: its name in a clone, beside the package.
  """
  package = pathlib.Path(__file__).parents[1]
  folder = package / inside
  return folder if folder.is_dir() else package.parent / beside


def make_workdir(workdir: str) -> Path:
  """Makes a folder, or checks that a bucket can be written.

  Raises:
    errors.UserError: if it cannot.
  """
  if is_address(workdir) and not workdir.startswith('gs://'):
    raise errors.UserError(
      f'--workdir={workdir} must be a folder or gs://BUCKET/FOLDER.'
    )
  path = as_path(workdir)
  try:
    if not is_address(workdir):
      path.mkdir(parents=True, exist_ok=True)
      return path
    # Buckets have no folders to be made: only a file can show it.
    probe = path / f'.probe-{uuid.uuid4().hex}'
    probe.write_text('')
    probe.unlink()
  except Exception as e:  # Each library of a storage has its own.
    text = errors.first_line(e)
    reason = getattr(e, 'strerror', None) or f'{type(e).__name__}: {text}'
    if isinstance(e, ImportError):
      reason = f"{text}; try pip install 'vit_jax[gcs]'"
    raise errors.UserError(
      f'--workdir={workdir} cannot be made: {reason}.'
    ) from e
  return path


def write_bytes(data: bytes, path: Path) -> None:
  """Writes a file, whole or not at all.

  Whoever reads it, or goes on after a kill, sees the old content or the new one.
  In a bucket an object appears only when all of it is there.

  Raises:
    OSError: if it cannot be written; it names `path`.
  """
  if is_address(path):
    path.write_bytes(data)
    return
  temporary = path.with_name(f'.{path.name}.{os.getpid()}.tmp')
  try:
    with open(temporary, 'wb') as f:
      f.write(data)
      f.flush()
      os.fsync(f.fileno())
    os.replace(temporary, path)
  except OSError as e:  # Messages name the file that was to be written.
    raise OSError(e.errno, e.strerror, os.fspath(path)) from e
  finally:
    temporary.unlink(missing_ok=True)


def upload(folder: pathlib.Path, address: Path, last: str = '') -> None:
  """Copies the files of a folder to an address, over those of their names.

  Args:
    folder: which has no folders in it.
    address: of a folder.
    last: name of the file to be copied after all others.
  """
  address.mkdir(parents=True, exist_ok=True)
  for file in sorted(folder.iterdir(), key=lambda p: (p.name == last, p.name)):
    (address / file.name).write_bytes(file.read_bytes())


@contextlib.contextmanager
def local_copy(folder: os.PathLike | str) -> Iterator[pathlib.Path]:
  """Gives a folder of this machine with the files of a folder or an address."""
  if not is_address(folder):
    yield pathlib.Path(folder)
    return
  with tempfile.TemporaryDirectory() as temporary:
    for file in as_path(folder).iterdir():
      if file.is_file():
        copy = pathlib.Path(temporary) / file.name
        copy.write_bytes(file.read_bytes())
    yield pathlib.Path(temporary)
