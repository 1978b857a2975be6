"""Tables in .npz files: arrays of images and labels, as `np.savez` writes them.

`images` [N, H, W] or [N, H, W, C] and `labels`: classes as integers or text [N], 0 and
1 for several classes [N, K], or numbers as floats, [N] or [N, K]. `split`, `weight` [N]
and `class_names` [K] may be there too. Files of one split each, as MedMNIST has, have
arrays such as `train_images` and `train_labels`.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import functools
import os
import pathlib
import threading
from typing import Any
import zipfile

import numpy as np

from vit_jax.configs import common
from vit_jax.configs import labels as labels_lib
from vit_jax.data import class_names
from vit_jax.data import stacks
from vit_jax.runtime import errors

_IMAGES, _LABELS = 'images', 'labels'
_SPLITS = ('train', 'val', 'test')
_EXTRAS = ('split', 'weight')

_READING = threading.Lock()  # Threads wait for the one that reads.


@dataclasses.dataclass(frozen=True)
class Content:
  """What a file has.

  Attributes:
    table: columns by name.
    columns: fields of `table_files.Columns` that the file decides.
  """

  table: dict[str, Any]
  columns: dict[str, Any]


class Images(Sequence[Any]):
  """Images of an array by row. Other processes get the name of its file alone."""

  def __init__(self, path: pathlib.Path, rows: Sequence[int] | None = None):
    self._path = path
    self._rows = None if rows is None else np.array(rows)

  def __getstate__(self) -> dict[str, Any]:
    return {k: v for k, v in self.__dict__.items() if k != '_array'}

  def __len__(self) -> int:
    return len(self._array if self._rows is None else self._rows)

  def __getitem__(self, index: Any) -> Any:
    return self._array[index if self._rows is None else self._rows[index]]

  def chosen(self, rows: Sequence[int]) -> 'Images':
    """Returns some rows of all."""
    return Images(self._path, rows)

  @property
  def image_shape(self) -> tuple[int, ...]:
    """[H, W, C] of each image."""
    return self._array.shape[1:]

  @functools.cached_property
  def _array(self) -> np.ndarray:
    return _arrays(self._path)[_IMAGES]


def is_npz(path: os.PathLike | str) -> bool:
  """Whether a table is such a file."""
  return os.fspath(path).lower().endswith(common.NPZ)


def read(path: pathlib.Path) -> Content:
  """Returns the columns of a file.

  Raises:
    errors.UserError: if it cannot be read, or its arrays do not belong together.
  """
  arrays = _arrays(path)
  names = [str(x) for x in np.atleast_1d(arrays.get('class_names', ()))]
  labels, columns = _labels(arrays[_LABELS], names, path)
  table: dict[str, Any] = {_IMAGES: Images(path), **labels}
  table |= {x: arrays[x].tolist() for x in _EXTRAS if x in arrays}
  return Content(table, {'image': _IMAGES, **columns})


def _labels(
  array: np.ndarray, names: Sequence[str], path: pathlib.Path
) -> tuple[dict[str, Any], dict[str, Any]]:
  """Returns the columns of labels, and what they are; see the module."""
  if array.ndim == 2 and array.shape[1] == 1:
    array = array[:, 0]
  if array.ndim not in (1, 2) or array.dtype.kind not in 'biufUS':
    raise errors.UserError(
      f'{path}: labels are {array.dtype} of shape {array.shape}, must be integers or'
      f' text [N] (classes), 0 and 1 [N, K] (several classes), or floats [N] or'
      f' [N, K] (numbers).'
    )
  if array.dtype.kind == 'f':
    values = array.reshape(len(array), -1)
    count = values.shape[1]
    fallback = [f'target_{i + 1}' for i in range(count)]
    names = names or (['target'] if count == 1 else fallback)
    _check_names(names, count, path)
    names = class_names.distinct(names, f'{path}: class_names')
    table = dict(zip(names, values.T.tolist(), strict=True))
    task = labels_lib.REGRESSION
    return table, {'task': task, 'target': ','.join(names)}
  if array.ndim == 2:
    return _several(array, names, path)
  return _classes(array, names, path)


def _several(
  array: np.ndarray, names: Sequence[str], path: pathlib.Path
) -> tuple[dict[str, Any], dict[str, Any]]:
  if array.dtype.kind in 'US' or not np.isin(array, (0, 1)).all():
    raise errors.UserError(
      f'{path}: labels are {array.dtype} of shape {array.shape}, must be 0 or 1 for'
      f' several classes an image, or [N] for one.'
    )
  names = names or [str(i) for i in range(array.shape[1])]
  _check_names(names, array.shape[1], path)
  rows = [[names[i] for i in np.flatnonzero(row).tolist()] for row in array]
  task, classes = labels_lib.MULTILABEL, tuple(names)
  return {_LABELS: rows}, {
    'task': task,
    'labels': _LABELS,
    'class_names': classes,
  }


def _classes(
  array: np.ndarray, names: Sequence[str], path: pathlib.Path
) -> tuple[dict[str, Any], dict[str, Any]]:
  if array.dtype.kind == 'S':
    try:
      array = np.char.decode(array, 'utf-8')
    except UnicodeDecodeError as e:
      raise errors.UserError(f'{path}: labels are no UTF-8: {e}.') from e
  values = array.tolist()
  if names and array.dtype.kind in 'biu':
    if array.min() < 0 or array.max() >= len(names):
      raise errors.UserError(
        f'{path}: labels are from {array.min()} to {array.max()}, but class_names'
        f' has {len(names)}.'
      )
    values = [names[int(i)] for i in values]
  columns = {
    'task': labels_lib.MULTICLASS,
    'label': _LABELS,
    'class_names': tuple(names),
  }
  return {_LABELS: values}, columns


def _check_names(names: Sequence[str], count: int, path: pathlib.Path) -> None:
  if len(names) != count:
    raise errors.UserError(
      f'{path}: class_names has {len(names)} names, but labels {count} columns.'
    )


def _arrays(path: pathlib.Path) -> Mapping[str, np.ndarray]:
  """Returns the arrays of a file, which are read once in a process."""
  try:
    status = os.stat(path)
    with _READING:
      return _read_arrays(path, status.st_size, status.st_mtime_ns)
  except errors.UserError:
    raise
  except (OSError, zipfile.BadZipFile, EOFError, ValueError, KeyError) as e:
    reason = getattr(e, 'strerror', None) or errors.first_line(e)
    raise errors.UserError(f'{path} cannot be read: {reason}') from e


@functools.lru_cache(4)
def _read_arrays(
  path: pathlib.Path, size: int, changed: int
) -> Mapping[str, np.ndarray]:
  del size, changed
  with _open(path) as file:
    wanted = (_IMAGES, _LABELS, 'class_names', *_EXTRAS)
    found = {name: file[name] for name in wanted if name in file}
    if _IMAGES not in found and f'train_{_IMAGES}' in file:
      found |= _joined(file, path)
    known = list(file)
  if missing := [x for x in (_IMAGES, _LABELS) if x not in found]:
    raise errors.UserError(
      f'{path} has no array {missing[0]!r}, only {", ".join(known)}: write it with'
      f' np.savez(path, images=..., labels=...).'
    )
  images = found[_IMAGES]
  if images.ndim not in (3, 4) or not len(images):
    raise errors.UserError(
      f'{path}: images have the shape {images.shape}, must be [N, H, W] or'
      f' [N, H, W, C].'
    )
  try:
    stacks.as_image(images[0])
    stacks.check_channels_last(images[0].shape)
  except ValueError as e:
    raise errors.UserError(f'{path}: images[0]: {e}.') from e
  for name in (_LABELS, *_EXTRAS):
    count = len(np.atleast_1d(found.get(name, images)))
    if count != len(images):
      raise errors.UserError(
        f'{path} has {len(images)} images, but {count} {name}.'
      )
  found[_IMAGES] = images.reshape(*images.shape[:3], -1)
  return found


def _open(path: pathlib.Path) -> np.lib.npyio.NpzFile:
  file = np.load(path)
  if not isinstance(file, np.lib.npyio.NpzFile):
    raise errors.UserError(
      f'{path} is one array, of np.save: write it with np.savez(path, images=...,'
      f' labels=...).'
    )
  return file


def _joined(
  file: Mapping[str, np.ndarray], path: pathlib.Path
) -> dict[str, np.ndarray]:
  """Returns the arrays of all splits together."""
  splits = [x for x in _SPLITS if f'{x}_{_IMAGES}' in file]
  parts = {
    name: [file[f'{x}_{name}'] for x in splits] for name in (_IMAGES, _LABELS)
  }
  for x, images, labels in zip(splits, *parts.values(), strict=True):
    if len(images) != len(labels):
      raise errors.UserError(
        f'{path} has {len(images)} {x}_{_IMAGES}, but {len(labels)} {x}_{_LABELS}.'
      )
  found = {name: np.concatenate(arrays) for name, arrays in parts.items()}
  counts = [len(labels) for labels in parts[_LABELS]]
  return {**found, 'split': np.repeat(splits, counts)}
