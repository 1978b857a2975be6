"""Where the files in .tar archives lie, so that they are read in any order.

The places are found once, by reading the headers of an archive, and kept in the
cache of this user until the archive changes.
"""

from collections.abc import Sequence
import dataclasses
import glob
import hashlib
import io
import itertools
import os
import pathlib
import re
import tarfile

from absl import logging
from etils import epath
import numpy as np
import platformdirs

from vit_jax.runtime import errors
from vit_jax.runtime import storage

# Names need not be UTF-8.
_ERRORS = 'surrogateescape'

_END = bytes(1024)  # What every whole archive ends with.
_BRACES = re.compile(r'\{([^{}]*)\}')
_RANGE = re.compile(r'(\d+)\.\.(\d+)')


@dataclasses.dataclass(frozen=True)
class Members:
  """The files in an archive: names, first bytes, numbers of bytes."""

  names: Sequence[str]
  offsets: np.ndarray
  sizes: np.ndarray


def find(pattern: str) -> list[str]:
  """Returns the archives that a pattern such as 'train-{000..099}.tar' names.

  Raises:
    errors.UserError: if one is missing.
  """
  found = []
  for path in _expanded(pattern):
    if storage.is_address(path):
      found.append(path)
      continue
    path = os.path.expanduser(path)
    matches = sorted(glob.glob(path)) or [path]
    found += matches
    if not os.path.isfile(matches[0]):
      raise errors.UserError(
        f'The data set is {pattern!r}, but there is no {path}.'
      )
  return found


def _expanded(pattern: str) -> list[str]:
  """Returns all texts of a pattern with {a,b} and {000..099}, each once."""
  if not (
    braces := _BRACES.search(pattern)
  ):  # The first without others inside.
    return [pattern]
  before, after = pattern[: braces.start()], pattern[braces.end() :]
  texts = [_expanded(before + x + after) for x in _choices(braces[1])]
  return list(dict.fromkeys(itertools.chain(*texts)))


def _choices(text: str) -> list[str]:
  if not (ends := _RANGE.fullmatch(text)):
    return text.split(',')
  first, last = ends.groups()
  if int(first) > int(last):
    raise errors.UserError(
      f'The range {{{text}}} is empty: {last} comes before {first}.'
    )
  return [f'{i:0{len(first)}}' for i in range(int(first), int(last) + 1)]


def read(path: str) -> Members:
  """Returns the files in an archive.

  Raises:
    errors.UserError: if it is not a whole, uncompressed .tar.
  """
  kept = _kept_in(path)
  if kept.is_file():
    with np.load(kept) as arrays:
      names = bytes(arrays['names']).decode(errors=_ERRORS).split('\0')
      return Members(names, arrays['offsets'], arrays['sizes'])
  members = _scan(path)
  _keep(members, kept)
  return members


def _scan(path: str) -> Members:
  rows = []
  try:
    with storage.as_path(path).open('rb') as file:
      with tarfile.open(fileobj=file, mode='r:') as archive:
        rows += [
          (member.name, member.offset_data, member.size)
          for member in archive
          if member.isfile()
        ]
      file.seek(0, os.SEEK_END)
      file.seek(max(0, file.tell() - len(_END)))
      if file.read() != _END:
        raise tarfile.ReadError('its end is missing')
  except (OSError, tarfile.TarError) as e:
    reason = getattr(e, 'strerror', None) or errors.first_line(e)
    raise errors.UserError(
      f'{path} cannot be read: {reason}. It must be a whole .tar that is not'
      f' compressed.'
    ) from e
  if not rows:
    raise errors.UserError(f'{path} has no files.')
  names, offsets, sizes = zip(*rows, strict=True)
  return Members(list(names), np.array(offsets), np.array(sizes))


def _kept_in(path: str) -> pathlib.Path:
  """Returns the file for the places in an archive, named by its size and date."""
  if storage.is_address(path):
    there = epath.Path(path).stat()
    facts: tuple[str, int, float] = (path, there.length, there.mtime)
  else:
    here = os.stat(path)
    facts = (os.path.abspath(path), here.st_size, here.st_mtime_ns)
  name = hashlib.sha256(repr(facts).encode()).hexdigest()[:32]
  return platformdirs.user_cache_path('vit_jax') / 'shards' / f'{name}.npz'


def _keep(members: Members, path: pathlib.Path) -> None:
  text = '\0'.join(members.names).encode(errors=_ERRORS)
  names = np.frombuffer(text, np.uint8)
  content = io.BytesIO()
  np.savez(content, names=names, offsets=members.offsets, sizes=members.sizes)
  try:
    path.parent.mkdir(parents=True, exist_ok=True)
    storage.write_bytes(content.getvalue(), path)
  except OSError as e:  # The next run reads the headers again.
    logging.warning('%s cannot be written: %s', path, e.strerror)
