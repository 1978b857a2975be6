"""Text, JSON and lines in files; files and folders replaced as a whole."""

from collections.abc import Collection, Iterator, Sequence
import contextlib
import json
import os
import pathlib
import tempfile
from typing import Any

from vit_jax.runtime import errors
from vit_jax.runtime import storage


def output_path(
  output: str, endings: Collection[str], flag: str = 'output'
) -> pathlib.Path:
  """Returns the local path of a file to write, before anything takes long.

  Raises:
    errors.UserError: with the flag, if its name has none of the endings, or it is a
      folder or an address.
  """
  path = storage.local_path(output)
  if path.suffix not in endings:
    *most, last = endings
    known = f'{", ".join(most)} or {last}' if most else last
    raise errors.UserError(f'{flag}={output} must end in {known}.')
  if path.is_dir():
    raise errors.UserError(f'{flag}={output} is a folder. Name a file.')
  return path


def write_text(text: str, path: storage.Path) -> None:
  """Writes a text file, whole or not at all."""
  storage.write_bytes(text.encode('utf-8'), path)


def write_json(content: Any, path: storage.Path) -> None:
  """Writes indented JSON, whole or not at all."""
  write_text(json.dumps(content, indent=2) + '\n', path)


def read_json(path: storage.Path) -> dict[str, Any]:
  """Reads a JSON object; an empty one if the file is missing."""
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
  """Provides an empty folder that replaces `directory` at the end.

  An old one stays until then, and for good after an error. At an address, files
  are replaced one by one, the file `last` at the end.
  """
  if storage.is_address(directory):
    with tempfile.TemporaryDirectory() as name:
      new = pathlib.Path(name)
      yield new
      storage.upload(new, storage.as_path(directory), last)
    return
  target = storage.local_path(directory)
  with errors.writing(target), _temporary_beside(target) as parent:
    new, old = parent / 'new', parent / 'old'
    new.mkdir()
    yield new
    if target.exists():
      target.rename(old)
    new.rename(target)


@contextlib.contextmanager
def replaced_file(path: pathlib.Path) -> Iterator[pathlib.Path]:
  """Provides a path of the same name that replaces `path` at the end.

  Other files in its folder are moved too, before it. After an error nothing
  changes.
  """
  with _temporary_beside(path) as folder:
    temporary = folder / path.name
    yield temporary
    for file in folder.iterdir():
      with open(file, 'rb') as f:
        os.fsync(f.fileno())
    for file in folder.iterdir():
      if file != temporary:
        os.replace(file, path.parent / file.name)
    os.replace(temporary, path)


@contextlib.contextmanager
def _temporary_beside(path: pathlib.Path) -> Iterator[pathlib.Path]:
  path.parent.mkdir(parents=True, exist_ok=True)
  storage.remove_leftovers(path)
  with tempfile.TemporaryDirectory(
    dir=path.parent,
    prefix=f'.{path.name}.',
    suffix='.tmp',
    ignore_cleanup_errors=True,
  ) as name:
    yield pathlib.Path(name)


def write_lines(names: Sequence[str], path: storage.Path) -> None:
  """Writes names, one per line; names that are not plain lines as JSON strings."""

  def line(name: str) -> str:
    is_plain = name.isprintable() and not name.startswith('"')
    return name if is_plain else json.dumps(name)

  write_text(''.join(f'{line(name)}\n' for name in names), path)


def read_lines(path: pathlib.Path) -> list[str]:
  """Reads what `write_lines` wrote; keeps lines that only begin like JSON."""

  def name(line: str) -> str:
    try:
      return json.loads(line) if line.startswith('"') else line
    except ValueError:
      return line

  lines = path.read_text(encoding='utf-8-sig').split('\n')
  return [name(line) for line in (lines if lines[-1] else lines[:-1])]
