"""Text, JSON and lines in files, each written whole or not at all."""

from collections.abc import Iterator, Sequence
import contextlib
import json
import os
import pathlib
import tempfile
from typing import Any

from vit_jax.runtime import errors
from vit_jax.runtime import storage


def write_text(text: str, path: storage.Path) -> None:
  """Writes a text file, whole or not at all."""
  storage.write_bytes(text.encode('utf-8'), path)


def write_json(content: Any, path: storage.Path) -> None:
  """Writes JSON that people can read, whole or not at all."""
  write_text(json.dumps(content, indent=2) + '\n', path)


def read_json(path: storage.Path) -> dict[str, Any]:
  """Reads a JSON object; an empty one if there is no such file.

  Raises:
    errors.UserError: if it is damaged.
  """
  if not path.is_file():
    return {}
  text = path.read_bytes()
  try:
    content = json.loads(text.decode('utf-8'))
  except (ValueError, RecursionError) as e:
    reason = f'damaged: {e}' if text.strip() else 'empty'
    raise errors.UserError(f'{path} is {reason}.') from e
  if not isinstance(content, dict):
    raise errors.UserError(f'{path} does not hold a JSON object.')
  return content


@contextlib.contextmanager
def replaced_folder(
  directory: os.PathLike | str, last: str = ''
) -> Iterator[pathlib.Path]:
  """Gives an empty folder that takes the place of `directory` when it is done.

  One that was there stays until then, and for good if an error comes. At an
  address files can only be replaced one by one: `last` is the last of them.

  Raises:
    errors.UserError: if it cannot be written.
  """
  if storage.is_address(directory):
    with tempfile.TemporaryDirectory() as new:
      yield pathlib.Path(new)
      storage.upload(pathlib.Path(new), storage.as_path(directory), last)
    return
  directory = storage.local_path(directory)
  try:
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
      dir=directory.parent,
      prefix=f'.{directory.name}-',
      ignore_cleanup_errors=True,
    ) as parent:
      new, old = pathlib.Path(parent) / 'new', pathlib.Path(parent) / 'old'
      new.mkdir()
      yield new
      if directory.exists():
        directory.rename(old)
      new.rename(directory)
  except OSError as e:
    raise errors.UserError(
      f'{directory} cannot be written: {e.strerror or e}.'
    ) from e


@contextlib.contextmanager
def replaced_file(path: pathlib.Path) -> Iterator[pathlib.Path]:
  """Gives a path of this name that takes the place of `path` when it is done.

  What else lies beside it then comes along, before it. Until then, and for good
  if an error comes, nothing changes.
  """
  path.parent.mkdir(parents=True, exist_ok=True)
  with tempfile.TemporaryDirectory(
    dir=path.parent, prefix=f'.{path.name}-'
  ) as folder:
    temporary = pathlib.Path(folder) / path.name
    yield temporary
    for file in temporary.parent.iterdir():
      with open(file, 'rb') as f:
        os.fsync(f.fileno())
    for file in temporary.parent.iterdir():
      if file != temporary:
        os.replace(file, path.parent / file.name)
    os.replace(temporary, path)


def write_lines(names: Sequence[str], path: storage.Path) -> None:
  """Writes names, one a line; others than plain lines as JSON strings."""

  def line(name: str) -> str:
    is_plain = name.isprintable() and not name.startswith('"')
    return name if is_plain else json.dumps(name)

  write_text(''.join(f'{line(name)}\n' for name in names), path)


def read_lines(path: pathlib.Path) -> list[str]:
  """Undoes `write_lines`; lines that only begin like JSON stay as they are."""

  def name(line: str) -> str:
    try:
      return json.loads(line) if line.startswith('"') else line
    except ValueError:
      return line

  lines = path.read_text(encoding='utf-8').split('\n')
  return [name(line) for line in (lines if lines[-1] else lines[:-1])]
