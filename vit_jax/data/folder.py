"""Image files in folders, `{split}/{class}/{image}` or `{class}/{image}`."""

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

from vit_jax.data import class_names as class_names_lib
from vit_jax.data import image_files
from vit_jax.data import splits as splits_lib
from vit_jax.data import unsplit
from vit_jax.runtime import errors

VALIDATION_NAMES = ('val', 'valid', 'validation')
SPLIT_NAMES = ('train', 'test', *VALIDATION_NAMES)

Classes = dict[str, image_files.Found]


class FileSource:
  """Image files, each with a target: its label or its captions.

  `unread` counts the other files in the same folders, by suffix. `split_by` says
  what decides the split of an image; empty if that is the folder it is in. `ranges`
  are the parts of splits that the files are.
  """

  def __init__(
    self,
    files: Sequence[tuple[str, Any]],
    class_names: Sequence[str] = (),
    unread: Mapping[str, int] = types.MappingProxyType({}),
    target: str = 'label',
    split_by: str = '',
    ranges: splits_lib.Ranges = (),
  ):
    self._files, self._target = files, target
    self.class_names: Sequence[str] = list(class_names)
    self.image_shape: tuple[int, ...] | None = None
    self.unread = dict(unread)
    self.split_by = split_by
    self.ranges = ranges

  def __len__(self) -> int:
    return len(self._files)

  def __getitem__(self, index: int) -> dict[str, Any]:
    path, target = self._files[index]
    image = image_files.read_bytes(path)
    return {'image': image, self._target: target, 'name': path}

  def labels(self) -> np.ndarray:
    """Returns the labels of all images, int [N]."""
    return np.array([label for _, label in self._files], int)

  def names(self) -> list[str]:
    """Returns the paths of all images."""
    return [path for path, _ in self._files]


@errors.reading()
def is_unsplit(root: pathlib.Path) -> bool:
  """Whether a folder has class folders with images, but no folders of splits."""
  folders = [x for x in root.iterdir() if x.is_dir() and x.name[0] != '.']
  if {x.name for x in folders} & {*SPLIT_NAMES}:
    return False
  return any(map(_has_images, folders))


def _has_images(folder: pathlib.Path) -> bool:
  """Whether a folder itself has images, not those in it."""
  with os.scandir(folder) as entries:
    return any(image_files.is_read(x.name) and x.is_file() for x in entries)


def _open_unsplit(root: pathlib.Path, split: str) -> FileSource:
  """Lists the images of a part of 'train', the only split."""
  classes = _find_classes(root, root)
  class_names = class_names_lib.ordered(classes)
  files = [
    (path, label)
    for label, name in enumerate(class_names)
    for path in classes[name].images
  ]
  parts = splits_lib.parse_split(split, {'train': len(files)}, str(root))
  unread = sum((x.unread for x in classes.values()), collections.Counter[str]())
  image_files.warn_of_unread(unread, root)
  order = unsplit.stratified(
    [label for _, label in files], unsplit.hashes([path for path, _ in files])
  )
  chosen = [files[i] for _, start, end in parts for i in order[start:end]]
  return FileSource(
    chosen, class_names, unread, split_by=unsplit.SPLIT_BY, ranges=parts
  )


@errors.reading()
def open_folder(root: pathlib.Path, split: str) -> FileSource:
  """Lists the images of a split; see `sources.get_source`."""
  if is_unsplit(root):
    return _open_unsplit(root, split)
  splits = {
    path.name: _find_classes(path, root)
    for path in sorted(root.iterdir())
    if path.is_dir() and path.name[0] != '.' and not path.samefile(root)
  }
  splits = {name: classes for name, classes in splits.items() if classes}
  if not splits:
    raise errors.UserError(f'{root} has {_explain_no_splits(root)}')
  splits, split = with_test(splits, split)
  wants_train = re.split(r'\W', split)[0] == 'train'
  if wants_train and splits.keys().isdisjoint(SPLIT_NAMES):
    raise errors.UserError(
      f'{root} has no folder train, but {errors.some(sorted(splits))}, which have'
      f' folders of images. If they are classes, put the images into them; if they'
      f' are splits, set config.pp.train and config.pp.test.'
    )
  sizes = {
    name: sum(len(found.images) for found in classes.values())
    for name, classes in splits.items()
  }
  parts = splits_lib.parse_split(split, sizes, str(root))
  _check_classes(splits, root)
  class_names = class_names_lib.ordered(set().union(*splits.values()))
  files = {
    name: _labelled(splits[name], class_names, root) for name, _, _ in parts
  }
  unread = collections.Counter[str]()
  for name in files:
    for found in splits[name].values():
      unread += found.unread
  image_files.warn_of_unread(unread, f'{root}, {split}')
  chosen = [file for name, a, b in parts for file in files[name][a:b]]
  return FileSource(chosen, class_names, unread, ranges=parts)


def _labelled(
  classes: Classes, class_names: Sequence[str], root: pathlib.Path
) -> list[tuple[str, int]]:
  """Returns the (path, label) of all images, in the order of `name_hash`."""
  labels = {name: label for label, name in enumerate(class_names)}
  files = [
    (path, labels[name])
    for name, found in classes.items()
    for path in found.images
  ]
  return sorted(files, key=lambda file: name_hash(file[0], root))


def _explain_no_splits(root: pathlib.Path) -> str:
  """Returns what a folder without splits has, and what to do."""
  found = image_files.find(root)
  layout = (
    f'It must look like <class>/<image>, or train/<class>/<image> and'
    f' test/<class>/<image>, with images {", ".join(image_files.SUFFIXES)}.'
  )
  if not found.images:
    rest = image_files.count_text(found.unread)
    return f'no images{f", but {rest}" if rest else ""}. {layout}'
  paths = [os.path.relpath(x, root).split(os.sep) for x in found.images]
  folders = sorted({parts[0] for parts in paths if len(parts) > 1})
  where = f' in {", ".join(folders[:3])}' if folders else ''
  more = ', ...' if len(folders) > 3 else ''
  return f'{len(found.images)} images{where}{more}, but not in class folders. {layout}'


def _check_classes(
  splits: Mapping[str, Collection[str]], root: pathlib.Path
) -> None:
  """Raises `errors.UserError` unless all splits have the same classes."""
  # Without a training split, the classes of all splits together count.
  known = set(splits.get('train') or set().union(*splits.values()))
  for name, classes in splits.items():
    missing, extra = sorted(known - set(classes)), sorted(set(classes) - known)
    if extra:
      raise errors.UserError(
        f'{root / name} has {_some(extra)} that {root / "train"} lacks or has no'
        f' images of: a model knows only the classes it was trained on. Add such'
        f' images to train, or move the folder out of {name}.'
      )
    if missing:
      raise errors.UserError(
        f'{root / name} has no images of {_some(missing)} of the {len(known)} in'
        f' the data set. Each split needs a folder with images for each class.'
      )


def _some(names: Sequence[str]) -> str:
  """Returns '7 classes (a, b, c, d, e and 2 more)'."""
  noun = 'class' if len(names) == 1 else 'classes'
  return f'{len(names)} {noun} ({errors.some(names)})'


def with_test(splits: dict[str, Any], split: str) -> tuple[dict[str, Any], str]:
  """Renames a validation split to 'test' in both, unless there is a 'test'.

  `split` may call the validation split by any of its names.
  """
  found = next((n for n in VALIDATION_NAMES if n in splits), '')
  if not found:
    return splits, split
  name = found if 'test' in splits else 'test'
  others = [n for n in VALIDATION_NAMES if n == found or n not in splits]
  split = re.sub(rf'\b({"|".join(others)})\b', name, split)
  return {name if n == found else n: x for n, x in splits.items()}, split


def _find_classes(folder: pathlib.Path, root: pathlib.Path) -> Classes:
  """Returns the files of each class by its name, from nested folders too."""
  classes: Classes = {}
  empty, loose = [], []
  for entry in sorted(folder.iterdir()):
    if entry.name.startswith('.'):
      continue
    if not entry.is_dir():
      loose += [entry.name] if image_files.is_read(entry.name) else []
      continue
    found, name = image_files.find(root, folder, entry), _class_name(entry.name)
    if found.has_unread_images and not found.images:
      raise errors.UserError(
        f'{entry} has no images that can be read, but'
        f' {image_files.count_text(found.unread)}: convert them to one of'
        f' {", ".join(image_files.SUFFIXES)}, or move the folder away.'
      )
    if not found.images:
      empty.append(str(entry))
    elif name in classes:  # In both Unicode forms.
      classes[name].add(found)
    else:
      classes[name] = found
  if classes and empty:
    logging.warning(
      'Folders without images do not become classes: %s.', errors.some(empty)
    )
  if classes and loose:
    logging.warning(
      '%s: %d images are in no class folder and are left out, such as %s.',
      folder,
      len(loose),
      loose[0],
    )
  return classes


def _class_name(name: str) -> str:
  r"""Returns a folder's name as text that compares equal on every machine.

  macOS separates accents from letters (NFD), other systems do not (NFC). Bytes
  that are not UTF-8 become `\xe9`.
  """
  data = name.encode(errors='surrogateescape')
  return unicodedata.normalize('NFC', data.decode(errors='backslashreplace'))


def name_hash(path: str, root: pathlib.Path) -> bytes:
  """Returns a hash of the name below `root`, the same on every machine."""
  name = os.path.relpath(path, root).replace(os.sep, '/')
  name = unicodedata.normalize('NFC', name)
  return hashlib.md5(name.encode(errors='surrogateescape')).digest()
