"""Finds and reads image files; counts other files."""

import collections
from collections.abc import Iterator, Mapping
import dataclasses
import os
import pathlib

from absl import logging

from vit_jax.runtime import errors
from vit_jax.runtime import storage

SUFFIXES = (
  '.jpg', '.jpeg', '.png', '.webp', '.bmp', '.tif', '.tiff', '.gif', '.avif',
  '.heic', '.heif', '.npy',
)  # fmt: skip

# In a folder with pictures, such files are not read as images.
_ARRAYS = '.npy'

# Images of unsupported formats.
_UNREAD = (
  '.jfif', '.jxl', '.jp2', '.ppm', '.pgm', '.pbm', '.pnm', '.dcm', '.dng', '.raw', '.cr2', '.nef', '.arw',
)  # fmt: skip


@dataclasses.dataclass
class Found:
  """The files of a folder: sorted paths of images, and counts by other suffix."""

  images: list[str]
  unread: collections.Counter[str]

  def add(self, other: 'Found') -> None:
    """Adds the files of another folder."""
    self.images = sorted({*self.images, *other.images})
    self.unread += other.unread

  @property
  def has_unread_images(self) -> bool:
    """Whether some files are images of unsupported formats."""
    return not self.unread.keys().isdisjoint(_UNREAD)


def is_array(name: str) -> bool:
  """Whether a file name is that of an array."""
  return name.lower().endswith(_ARRAYS)


def is_read(name: str) -> bool:
  """Whether a file name has the suffix of a supported image format."""
  return name.lower().endswith(SUFFIXES)


def is_hidden(path: str) -> bool:
  """Whether a file, or a folder that it is in, has a name that begins with a dot."""
  parts = pathlib.PurePosixPath(path).parts
  return any(part.startswith('.') and part != '..' for part in parts)


def find(*folders: os.PathLike | str) -> Found:
  """Finds the images in the last folder and below it, except hidden files.

  Its parents come first: links to one of them are not followed, which would find
  the same images without end. Files .npy are images only where there are no pictures.
  """
  images, unread = [], collections.Counter[str]()
  for path in _walk(os.fspath(folders[-1]), {_id(x) for x in folders[:-1]}):
    if is_read(path):
      images.append(path)
    else:
      unread[pathlib.PurePath(path).suffix.lower() or 'no suffix'] += 1
  if pictures := [path for path in images if not is_array(path)]:
    if others := len(images) - len(pictures):
      unread[_ARRAYS] += others
    images = pictures
  return Found(sorted(images), unread)


def _walk(folder: str, seen: set[tuple[int, int]]) -> Iterator[str]:
  """Yields the files of each folder once, however many links lead to it."""
  if (identity := _id(folder)) in seen:
    return
  seen.add(identity)
  with errors.reading():
    # Folders come before links to them, whatever their order on the disk.
    entries = sorted(os.scandir(folder), key=lambda x: (x.is_symlink(), x.name))
  for entry in entries:
    if entry.name.startswith('.'):
      continue
    if entry.is_dir():
      yield from _walk(entry.path, seen)
    else:
      yield entry.path


def _id(folder: os.PathLike | str) -> tuple[int, int]:
  status = os.stat(folder)
  return status.st_dev, status.st_ino


def count_text(unread: Mapping[str, int]) -> str:
  """Returns '51 .tif, 2 .txt'."""
  rows = sorted(unread.items(), key=lambda row: (-row[1], row[0]))
  return ', '.join(f'{count:,} {suffix}' for suffix, count in rows)


def warn_of_unread(
  unread: Mapping[str, int], folder: os.PathLike | str
) -> None:
  """Logs how many files are not read, by suffix, if there are any."""
  if unread:
    hint = ' Beside pictures, .npy files are not.' if _ARRAYS in unread else ''
    logging.warning(
      '%s: %d files are not read, %s. The endings that are read: %s.%s',
      folder,
      sum(unread.values()),
      count_text(unread),
      ', '.join(SUFFIXES),
      hint,
    )


def read_bytes(path: str, offset: int = 0, size: int | None = None) -> bytes:
  """Reads `size` bytes of a file, or all, from `offset` on.

  It takes few system calls: threads wait for each other at each.
  """
  if storage.is_address(path):
    with storage.as_path(path).open('rb') as file:
      file.seek(offset)
      return file.read() if size is None else file.read(size)
  descriptor = os.open(path, os.O_RDONLY)
  try:
    size = os.fstat(descriptor).st_size if size is None else size
    data = os.pread(descriptor, size, offset)
    while len(data) < size and (
      more := os.pread(descriptor, size - len(data), offset + len(data))
    ):
      data += more  # Network file systems may return it in parts.
    return data
  finally:
    os.close(descriptor)
