"""Random-access sources of labelled images, by name or folder.

A source has a length, `class_names`, `image_shape` (None where sizes differ) and
yields {'image': uint8 [H, W, C] or the bytes of a file, 'label': int, 'name':
str}. It can be pickled into worker processes. A source whose images have any number
of classes, or numbers, says so by `task`, and its labels are float32 [K]. One that is
a part of a data set says which by `ranges`, see `splits`.
"""

from collections.abc import Mapping, Sequence
import os
import pathlib
from typing import Any, Protocol, runtime_checkable

import numpy as np

from vit_jax.configs import common
from vit_jax.configs import labels as labels_lib
from vit_jax.data import cifar
from vit_jax.data import folder
from vit_jax.data import splits as splits_lib
from vit_jax.data import unsplit
from vit_jax.data.rows import arrow_folders
from vit_jax.data.rows import shard_index
from vit_jax.data.rows import shards
from vit_jax.data.rows import table_files
from vit_jax.data.rows import tables
from vit_jax.runtime import errors
from vit_jax.runtime import storage


@runtime_checkable
class Source(Protocol):
  """What the pipeline reads; see the module's docstring."""

  class_names: Sequence[str]
  image_shape: tuple[int, ...] | None

  def __len__(self) -> int: ...

  def __getitem__(self, index: int) -> dict[str, Any]: ...


@runtime_checkable
class LabelledSource(Source, Protocol):
  """A source that can return all labels and all names at once."""

  def labels(self) -> np.ndarray:
    """Returns the labels of all images, int [N], or float32 [N, K]."""

  def names(self) -> Sequence[str]:
    """Returns the names of all images."""


class ArraySource:
  """Images in memory."""

  def __init__(
    self, images: np.ndarray, labels: np.ndarray, class_names: Sequence[str]
  ):
    self._images, self._labels = images, labels
    self.class_names: Sequence[str] = list(class_names)
    self.image_shape: tuple[int, ...] | None = images.shape[1:]
    self.num_channels = images.shape[-1]
    self.ranges: splits_lib.Ranges = ()

  def __len__(self) -> int:
    return len(self._images)

  def __getitem__(self, index: int) -> dict[str, Any]:
    image, label = self._images[index], int(self._labels[index])
    return {'image': image, 'label': label, 'name': f'image {index}'}

  def labels(self) -> np.ndarray:
    return np.asarray(self._labels, int)

  def names(self) -> list[str]:
    return [f'image {i}' for i in range(len(self))]


def data_root(data_dir: str | None) -> pathlib.Path:
  """Returns the folder of data sets; None stands for the TFDS default."""
  return storage.local_path(data_dir or '~/tensorflow_datasets')


def default_splits(
  dataset: str,
  train: str = 'train',
  test: str = 'test',
  columns: table_files.Columns = table_files.DEFAULT,
) -> tuple[str, str]:
  """Returns the splits to train on and to test, see `unsplit.default_splits`."""
  if is_unsplit(dataset, columns):
    return unsplit.default_splits(train, test)
  return train, test


def is_unsplit(
  dataset: str, columns: table_files.Columns = table_files.DEFAULT
) -> bool:
  """Whether a data set does not say which images are for the test."""
  if shards.is_shards(dataset):
    return not shards.has_splits(dataset)
  if table_files.is_table(dataset):
    require_folder(dataset)
    return not table_files.has_splits(table_files.place(dataset), columns)
  root = _folder(dataset)
  return root is not None and folder.is_unsplit(root)


def task(
  dataset: str, columns: table_files.Columns = table_files.DEFAULT
) -> str:
  """Returns what images are labelled with, one of `configs.labels_lib.TASKS`.

  Raises:
    errors.UserError: if `columns.task` is not that of the data set.
  """
  if table_files.is_table(dataset):
    require_folder(dataset)
    return table_files.complete(table_files.place(dataset), columns).task
  if shards.is_shards(dataset):
    return shards.task(dataset, columns)
  if columns.task not in ('', labels_lib.MULTICLASS):
    raise errors.UserError(
      f'The task is {columns.task}, but the images of {dataset} have one class'
      f' each: only a table ({", ".join(common.TABLES)}) has other labels.'
    )
  return labels_lib.MULTICLASS


def task_of(source: Source) -> str:
  """Returns what the images of a source are labelled with."""
  return getattr(source, 'task', labels_lib.MULTICLASS)


def get_source(
  dataset: str,
  split: str,
  *,
  data_dir: str | None = None,
  columns: table_files.Columns = table_files.DEFAULT,
) -> LabelledSource:
  """Opens a split of a data set.

  Args:
    dataset: a folder `{split}/{class}/{image}` or `{class}/{image}`, a table (see
      `table_files`), files of Hugging Face (see `arrow_folders`), shards (see
      `shards`), 'digits', 'cifar10', 'cifar100', or a TFDS data set,
      `name[/config][:version]`.
    split: TFDS notation, such as 'train[:98%]' or 'train+test[100:]'. Files of a
      folder have a fixed random order, so that slices contain all classes; in a
      folder without 'test', 'val' and similar names stand in for it. A folder or
      table without splits has 'train' alone, see `default_splits`.
    data_dir: folder of TFDS data sets and CIFAR; None for the TFDS default.
    columns: columns of a table.
  """
  if shards.is_shards(dataset):
    return shards.open_shards(dataset, split, columns)
  root = data_root(data_dir)
  if dataset == 'digits':
    return _array_source(_digits(), split, dataset)
  if dataset in cifar.NAMES:
    return _array_source(cifar.load(dataset, root), split, dataset)
  require_folder(dataset)
  if table_files.is_table(dataset):
    return tables.open_table(table_files.place(dataset), split, columns)
  if path := _folder(dataset):
    return folder.open_folder(path, split)
  from vit_jax.data import prepared  # Imported late: it takes time.

  return prepared.open_split(dataset, split, root)


def refuse_overlap(splits: Mapping[str, str], parts: Sequence[Source]) -> None:
  """Raises `errors.UserError` if two splits of a data set have images in common.

  Args:
    splits: both splits, by the settings that name them.
    parts: both splits, opened.
  """
  first, second = (getattr(part, 'ranges', ()) for part in parts)
  if splits_lib.overlap(first, second):
    texts = [f'{name}={split!r}' for name, split in splits.items()]
    one, other = splits
    raise errors.UserError(
      f'{" and ".join(texts)} have images in common: scores of images that a'
      f' model was trained or chosen on say nothing about others. Choose splits'
      f" such as {one}='train[:90%]' {other}='train[90%:]'."
    )


def _folder(dataset: str) -> pathlib.Path | None:
  """Returns the path of a data set that is a folder of this machine."""
  if not dataset or storage.is_address(dataset):
    return None
  path = storage.local_path(dataset)
  return path if path.is_dir() else None


def _is_file(dataset: str) -> bool:
  return (
    not storage.is_address(dataset) and storage.local_path(dataset).is_file()
  )


def require_folder(dataset: str) -> None:
  """Raises `errors.UserError` at the path of a missing folder, table or shard."""
  if shards.is_shards(dataset):
    shard_index.find(dataset)
    return
  if arrow_folders.is_named(dataset):
    arrow_folders.find(table_files.place(dataset))
    return
  is_table = table_files.is_table(dataset)
  if _folder(dataset) or (is_table and _is_file(dataset)):
    return
  is_path = is_table or dataset.startswith((os.sep, '.', '~'))
  if not dataset or is_path or storage.is_address(dataset):
    kind = 'file' if is_table else 'folder'
    raise errors.UserError(
      f'There is no data set {dataset!r}: no such {kind} here. Give a folder with'
      f' <class>/<image>, or with train/<class>/<image> and'
      f' test/<class>/<image>, a table ({", ".join(common.TABLES)}), .tar shards, a folder'
      f' or hf://datasets/USER/NAME of Hugging Face, or a name.'
    )


def _array_source(
  content: tuple[Mapping[str, tuple[np.ndarray, np.ndarray]], Sequence[str]],
  split: str,
  dataset: str,
) -> ArraySource:
  splits, class_names = content
  sizes = {name: len(labels) for name, (_, labels) in splits.items()}
  ranges = splits_lib.parse_split(split, sizes, dataset)
  images, labels = (
    [splits[name][i][start:end] for name, start, end in ranges] for i in (0, 1)
  )
  if len(ranges) == 1:  # Makes no second copy of the data set.
    source = ArraySource(images[0], labels[0], class_names)
  else:
    source = ArraySource(
      np.concatenate(images), np.concatenate(labels), class_names
    )
  source.ranges = ranges
  return source


def _digits() -> tuple[dict[str, tuple[np.ndarray, np.ndarray]], list[str]]:
  """Loads scikit-learn's 1,797 handwritten digits [8, 8, 1], 360 for the test."""
  from sklearn import datasets  # Slow to import and rarely needed.

  digits = datasets.load_digits()
  images = np.round(digits.images * (255 / 16)).astype(np.uint8)[..., None]
  labels = digits.target.astype(np.int32)
  order = np.random.RandomState(0).permutation(len(images))
  parts = {'train': order[360:], 'test': order[:360]}
  splits = {name: (images[i], labels[i]) for name, i in parts.items()}
  return splits, [str(name) for name in digits.target_names]
