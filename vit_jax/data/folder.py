"""Image files in folders, `{split}/{class}/{image}`."""

from collections.abc import Sequence
import hashlib
import os
import pathlib
import re
from typing import Any

from absl import logging
import numpy as np

from vit_jax import errors
from vit_jax.data import splits as splits_lib

IMAGE_SUFFIXES = ('.jpg', '.jpeg', '.png', '.webp', '.bmp')
VALIDATION_NAMES = ('val', 'valid', 'validation')


class FileSource:
  """Image files and their labels."""

  image_shape = None

  def __init__(
    self, files: Sequence[tuple[str, int]], class_names: Sequence[str]
  ):
    self._files = files
    self.class_names = list(class_names)

  def __len__(self) -> int:
    return len(self._files)

  def __getitem__(self, index: int) -> dict[str, Any]:
    path, label = self._files[index]
    return {'image': read_bytes(path), 'label': label, 'name': path}

  def labels(self) -> np.ndarray:
    """Returns those of all images, int [N]."""
    return np.array([label for _, label in self._files], int)


def read_bytes(path: str) -> bytes:
  """Reads a file by few system calls: threads wait for each other at each."""
  descriptor = os.open(path, os.O_RDONLY)
  try:
    size = os.fstat(descriptor).st_size
    data = os.read(descriptor, size)
    while len(data) < size and (more := os.read(descriptor, size - len(data))):
      data += more  # File systems on a network may give it in parts.
    return data
  finally:
    os.close(descriptor)


def open_folder(root: pathlib.Path, split: str) -> FileSource:
  """Lists the images of a split; see `sources.get_source`.

  Raises:
    errors.UserError: if there are no images, a class is missing from a split, or
      there is no such split.
  """
  splits = {
    folder.name: _class_folders(folder)
    for folder in sorted(root.iterdir())
    if folder.is_dir() and not folder.name.startswith('.')
  }
  splits = {name: classes for name, classes in splits.items() if classes}
  if not splits:
    raise errors.UserError(
      f'{root} has no images. It must look like train/<class>/<image> and'
      f' test/<class>/<image>, images being {", ".join(IMAGE_SUFFIXES)}.'
    )
  splits, split = with_test(splits, split)
  class_names = sorted(set().union(*splits.values()))
  for name, classes in splits.items():
    missing = sorted(set(class_names) - set(classes))
    if missing:
      raise errors.UserError(
        f'{root / name} has no images of {len(missing)} of'
        f' {len(class_names)} classes: {", ".join(missing[:5])}. Each split'
        f' needs a folder with images for each class.'
      )
  labels = {name: i for i, name in enumerate(class_names)}
  files = {
    name: _shuffled([(f, labels[c]) for c in classes for f in classes[c]], root)
    for name, classes in splits.items()
  }
  sizes = {name: len(x) for name, x in files.items()}
  parts = splits_lib.parse_split(split, sizes, str(root))
  chosen = [file for n, a, b in parts for file in files[n][a:b]]
  return FileSource(chosen, class_names)


def with_test(splits: dict[str, Any], split: str) -> tuple[dict[str, Any], str]:
  """Returns both with validation as 'test', where there is no 'test'."""
  stand_in = next((n for n in VALIDATION_NAMES if n in splits), 'test')
  if 'test' in splits or stand_in not in splits:
    return splits, split
  # Both of its names may be used.
  split = re.sub(rf'\b{stand_in}\b', 'test', split)
  names = {stand_in: 'test'}
  return {names.get(name, name): x for name, x in splits.items()}, split


def _class_folders(folder: pathlib.Path) -> dict[str, list[str]]:
  """Returns {class: files}, those of nested folders included."""
  classes, empty = {}, []
  for entry in os.scandir(folder):
    if not entry.is_dir() or entry.name.startswith('.'):
      continue
    if files := image_files(entry.path):
      classes[entry.name] = files
    else:
      empty.append(entry.path)
  if classes and empty:
    text = ', '.join(sorted(empty)[:5])
    logging.warning('Folders without images are no classes: %s.', text)
  return classes


def image_files(folder: str) -> list[str]:
  """Returns the image files in a folder and those below it, sorted."""
  return sorted(
    os.path.join(parent, name)
    for parent, _, names in os.walk(folder, followlinks=True)
    for name in names
    if name.lower().endswith(IMAGE_SUFFIXES) and not name.startswith('.')
  )


def _shuffled(
  files: list[tuple[str, int]], root: pathlib.Path
) -> list[tuple[str, int]]:
  return sorted(files, key=lambda file: name_hash(file[0], root))


def name_hash(path: str, root: pathlib.Path) -> bytes:
  """Returns a hash of the name below `root`, the same on every machine."""
  name = os.path.relpath(path, root).replace(os.sep, '/')
  return hashlib.md5(name.encode(errors='surrogateescape')).digest()
