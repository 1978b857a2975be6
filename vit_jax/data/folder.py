"""Image files in folders, `{split}/{class}/{image}`."""

import collections
from collections.abc import Collection, Mapping, Sequence
import hashlib
import os
import pathlib
import re
import types
from typing import Any
import unicodedata

from absl import logging
import numpy as np

from vit_jax.data import image_files
from vit_jax.data import splits as splits_lib
from vit_jax.runtime import errors

VALIDATION_NAMES = ('val', 'valid', 'validation')


class FileSource:
  """Image files and their labels.

  Attributes:
    class_names: in the order of the labels.
    unread: how many other files lie beside them, by suffix.
  """

  image_shape = None

  def __init__(
    self,
    files: Sequence[tuple[str, int]],
    class_names: Sequence[str],
    unread: Mapping[str, int] = types.MappingProxyType({}),
  ):
    self._files = files
    self.class_names = list(class_names)
    self.unread = dict(unread)

  def __len__(self) -> int:
    return len(self._files)

  def __getitem__(self, index: int) -> dict[str, Any]:
    path, label = self._files[index]
    return {'image': image_files.read_bytes(path), 'label': label, 'name': path}

  def labels(self) -> np.ndarray:
    """Returns those of all images, int [N]."""
    return np.array([label for _, label in self._files], int)


def open_folder(root: pathlib.Path, split: str) -> FileSource:
  """Lists the images of a split; see `sources.get_source`.

  Raises:
    errors.UserError: if there are no images, a class is missing from a split, or
      there is no such split.
  """
  splits = {
    path.name: _find_classes(path, root)
    for path in sorted(root.iterdir())
    if path.is_dir() and path.name[0] != '.' and not path.samefile(root)
  }
  splits = {name: classes for name, classes in splits.items() if classes}
  if not splits:
    raise errors.UserError(f'{root} has {_what_is_wrong(root)}')
  splits, split = with_test(splits, split)
  sizes = {
    name: sum(len(found.images) for found in classes.values())
    for name, classes in splits.items()
  }
  parts = splits_lib.parse_split(split, sizes, str(root))
  _check_classes(splits, root)
  class_names = sorted(set().union(*splits.values()))
  labels = {name: i for i, name in enumerate(class_names)}
  files, unread = {}, collections.Counter()
  for name in {name for name, _, _ in parts}:
    files[name] = _shuffled(
      [
        (f, labels[c])
        for c, found in splits[name].items()
        for f in found.images
      ],
      root,
    )
    for found in splits[name].values():
      unread += found.unread
  image_files.warn_of_unread(unread, f'{root}, {split}')
  chosen = [file for name, a, b in parts for file in files[name][a:b]]
  return FileSource(chosen, class_names, unread)


def _what_is_wrong(root: pathlib.Path) -> str:
  """Returns what a folder without splits has, and what to do."""
  found = image_files.find(root)
  layout = (
    f'It must look like train/<class>/<image> and test/<class>/<image>, images'
    f' being {", ".join(image_files.SUFFIXES)}.'
  )
  if not found.images:
    rest = image_files.count_text(found.unread)
    return f'no images{f", but {rest}" if rest else ""}. {layout}'
  folders = sorted(
    {os.path.relpath(x, root).split(os.sep)[0] for x in found.images}
    - {os.path.basename(x) for x in found.images}
  )
  where = f' in {", ".join(folders[:3])}' if folders else ''
  return (
    f'{len(found.images)} images{where}{", ..." if len(folders) > 3 else ""},'
    f' but no splits. {layout} To split one set of classes, move their folders'
    f' to {root}/train and set {splits_lib.SPLIT_EXAMPLE}.'
  )


def _check_classes(
  splits: Mapping[str, Collection[str]], root: pathlib.Path
) -> None:
  """Raises `errors.UserError` unless all splits have the same classes."""
  # Without a training split, no split says which classes there are.
  known = set(splits.get('train') or set().union(*splits.values()))
  for name, classes in splits.items():
    missing, extra = sorted(known - set(classes)), sorted(set(classes) - known)
    if extra:
      raise errors.UserError(
        f'{root / name} has {_some(extra)} that {root / "train"} lacks or has no'
        f' images of: a model knows the classes it is trained on. Add such'
        f' images to train, or move the folder out of {name}.'
      )
    if missing:
      raise errors.UserError(
        f'{root / name} has no images of {_some(missing)} of the {len(known)} in'
        f' the data set. Each split needs a folder with images for each class.'
      )


def _some(names: Sequence[str]) -> str:
  """Returns '7 classes (a, b, c, d, e, ...)'."""
  text = ', '.join(names[:5]) + (', ...' if len(names) > 5 else '')
  return f'{len(names)} {"class" if len(names) == 1 else "classes"} ({text})'


def with_test(splits: dict[str, Any], split: str) -> tuple[dict[str, Any], str]:
  """Returns both with validation as 'test', where there is no 'test'."""
  stand_in = next((n for n in VALIDATION_NAMES if n in splits), 'test')
  if 'test' in splits or stand_in not in splits:
    return splits, split
  # Both of its names may be used.
  split = re.sub(rf'\b{stand_in}\b', 'test', split)
  names = {stand_in: 'test'}
  return {names.get(name, name): x for name, x in splits.items()}, split


def _find_classes(
  folder: pathlib.Path, root: pathlib.Path
) -> dict[str, image_files.Found]:
  """Returns what each class has, in nested folders too, by its name.

  Raises:
    errors.UserError: if all images of a class are of formats that are not read.
  """
  classes, empty, loose = {}, {}, []
  for entry in sorted(folder.iterdir()):
    if entry.name.startswith('.'):
      continue
    if not entry.is_dir():
      loose += [entry.name] if image_files.is_read(entry.name) else []
      continue
    found, name = image_files.find(root, folder, entry), class_name(entry.name)
    if not found.images:
      empty[entry] = found
    elif name in classes:  # In both Unicode forms.
      classes[name].add(found)
    else:
      classes[name] = found
  for path, found in empty.items():
    if found.has_unread_images:
      raise errors.UserError(
        f'{path} has no images that can be read, but'
        f' {image_files.count_text(found.unread)}: convert them to one of'
        f' {", ".join(image_files.SUFFIXES)}, or move the folder away.'
      )
  if classes and empty:
    text = ', '.join(str(path) for path in list(empty)[:5])
    logging.warning('Folders without images are no classes: %s.', text)
  if classes and loose:
    logging.warning(
      '%s: %d images are in no class folder and are left out, such as %s.',
      folder,
      len(loose),
      loose[0],
    )
  return classes


def class_name(name: str) -> str:
  r"""Returns the name of a class as text that compares equal on every machine.

  macOS writes accents as characters of their own (NFD), others do not (NFC).
  Bytes of a folder's name that are not UTF-8 become `\xe9`.
  """
  data = name.encode(errors='surrogateescape')
  return unicodedata.normalize('NFC', data.decode(errors='backslashreplace'))


def _shuffled(
  files: list[tuple[str, int]], root: pathlib.Path
) -> list[tuple[str, int]]:
  return sorted(files, key=lambda file: name_hash(file[0], root))


def name_hash(path: str, root: pathlib.Path) -> bytes:
  """Returns a hash of the name below `root`, the same on every machine."""
  name = os.path.relpath(path, root).replace(os.sep, '/')
  return hashlib.md5(name.encode(errors='surrogateescape')).digest()
