"""Random-access sources of labelled images, by name or folder.

A source has a length, `class_names`, `image_shape` (or None where sizes differ)
and yields {'image': uint8 [H, W, C] or the bytes of a file, 'label': int,
'name': str}. It can be pickled into worker processes.
"""

from collections.abc import Sequence
import functools
import os
import pathlib
from typing import Any, Protocol, runtime_checkable

import numpy as np
import tensorflow_datasets as tfds

from vit_jax.data import cifar
from vit_jax.data import folder
from vit_jax.data import splits as splits_lib
from vit_jax.runtime import errors
from vit_jax.runtime import storage


@runtime_checkable
class Source(Protocol):
  """What the pipeline reads; see the module's docstring."""

  class_names: Sequence[str]
  image_shape: tuple[int, int, int] | None

  def __len__(self) -> int: ...

  def __getitem__(self, index: int) -> dict[str, Any]: ...


@runtime_checkable
class LabelledSource(Source, Protocol):
  """A source of which all labels can be had at once."""

  def labels(self) -> np.ndarray: ...


class ArraySource:
  """Images in memory."""

  def __init__(
    self, images: np.ndarray, labels: np.ndarray, class_names: Sequence[str]
  ):
    self._images, self._labels = images, labels
    self.class_names = list(class_names)
    self.image_shape = tuple(images.shape[1:])

  def __len__(self) -> int:
    return len(self._images)

  def __getitem__(self, index: int) -> dict[str, Any]:
    return {
      'image': self._images[index],
      'label': int(self._labels[index]),
      'name': f'image {index}',
    }

  def labels(self) -> np.ndarray:
    """Returns those of all images, int [N]."""
    return np.asarray(self._labels, int)


class TfdsSource:
  """A TFDS data set that was prepared as array_record; images stay encoded."""

  def __init__(self, builder: tfds.core.DatasetBuilder, split: str):
    features = builder.info.features
    if not {'image', 'label'} <= set(features):
      raise errors.UserError(
        f'{builder.name} has features {sorted(features)}; image classification'
        f' needs `image` and `label`.'
      )
    shape = features['image'].shape
    self.image_shape = None if None in shape else tuple(shape)
    self.class_names = list(features['label'].names)
    self._name = f'{builder.name} {split}'
    self._has_file_names = 'file_name' in features
    self._records = builder.as_data_source(
      split, decoders={'image': tfds.decode.SkipDecoding()}
    )

  def __len__(self) -> int:
    return len(self._records)

  def __getitem__(self, index: int) -> dict[str, Any]:
    record = self._records[index]
    name = f'{self._name}, record {index}'
    if self._has_file_names:
      name += f', {record["file_name"].decode()}'
    return {
      'image': record['image'],
      'label': int(record['label']),
      'name': name,
    }

  def labels(self) -> np.ndarray:
    """Returns those of all images, int [N]; reads the whole split."""
    return np.array([int(record['label']) for record in self._records])


def data_root(data_dir: str | None) -> pathlib.Path:
  """Returns where data sets are kept; None stands for the TFDS default."""
  return storage.local_path(data_dir or '~/tensorflow_datasets')


def get_source(
  dataset: str, split: str, *, data_dir: str | None = None
) -> LabelledSource:
  """Returns a split of a data set.

  Args:
    dataset: a folder `{split}/{class}/{image}`, 'digits', 'cifar10',
      'cifar100', or a TFDS data set, `name[/config][:version]`.
    split: in TFDS notation, such as 'train[:98%]' or 'train+test[100:]'. The
      files of a folder are in a fixed random order, so that a slice has every
      class; where a folder has no 'test', 'val' and like stand in for it.
    data_dir: where TFDS data sets and CIFAR are; None for the TFDS default.

  Raises:
    errors.UserError: if there is no such data set or split, or it is empty.
  """
  root = data_root(data_dir)
  if dataset == 'digits':
    return _array_source(*_digits(), split, dataset)
  if dataset in cifar.NAMES:
    return _array_source(*cifar.load(dataset, root), split, dataset)
  if os.path.isdir(dataset):
    return folder.open_folder(storage.local_path(dataset), split)
  require_folder(dataset)
  return _tfds_source(dataset, split, root)


def require_folder(dataset: str) -> None:
  """Raises `errors.UserError` at the path of a folder that is not there."""
  if os.path.isdir(dataset):
    return
  is_path = dataset.startswith((os.sep, '.', '~'))
  if not dataset or is_path or storage.is_address(dataset):
    raise errors.UserError(
      f'config.dataset is {dataset!r}, which is no folder here. Give a folder'
      f' with train/<class>/<image> and test/<class>/<image>, or a name.'
    )


def _array_source(
  splits: dict[str, tuple[np.ndarray, np.ndarray]],
  class_names: Sequence[str],
  split: str,
  dataset: str,
) -> ArraySource:
  sizes = {name: len(labels) for name, (_, labels) in splits.items()}
  parts = splits_lib.parse_split(split, sizes, dataset)
  images, labels = zip(
    *((splits[n][0][a:b], splits[n][1][a:b]) for n, a, b in parts), strict=True
  )
  if len(parts) == 1:  # No second copy of the data set in memory.
    return ArraySource(images[0], labels[0], class_names)
  return ArraySource(
    np.concatenate(images), np.concatenate(labels), class_names
  )


def _digits():
  """scikit-learn's 1,797 handwritten digits [8, 8, 1], 360 of them for test."""
  from sklearn import datasets  # Slow to import, and rarely needed.

  digits = datasets.load_digits()
  images = np.round(digits.images * (255 / 16)).astype(np.uint8)[..., None]
  order = np.random.RandomState(0).permutation(len(images))
  train, test = order[360:], order[:360]
  labels = digits.target.astype(np.int32)
  splits = {
    'train': (images[train], labels[train]),
    'test': (images[test], labels[test]),
  }
  return splits, [str(name) for name in digits.target_names]


@functools.cache
def _tfds_builder(dataset: str, root: pathlib.Path) -> tfds.core.DatasetBuilder:
  name, _, version = dataset.partition(':')
  found = {
    path.parent: path.parent.parent.relative_to(root).as_posix()
    for path in root.glob(f'{name}/**/dataset_info.json')
    if version in ('', path.parent.name)
  }
  if not found:
    raise errors.UserError(
      f'{dataset} is neither a folder nor prepared in {root}. Prepare it once:'
      f" pip install 'vit_jax[prepare]', then"
      f' vit-jax prepare {dataset} --data_dir={root}'
    )
  configs = sorted(set(found.values()))
  if len(configs) > 1:
    raise errors.UserError(
      f'{dataset} is prepared in several configs. Choose one of'
      f' {", ".join(configs)}.'
    )
  newest = max(found, key=lambda path: tfds.core.Version(path.name))
  # From the files alone: the code of a catalogue entry may need TensorFlow.
  return tfds.builder_from_directory(newest)


def _tfds_source(dataset: str, split: str, root: pathlib.Path) -> TfdsSource:
  builder = _tfds_builder(dataset, root)
  sizes = {k: v.num_examples for k, v in builder.info.splits.items()}
  splits_lib.parse_split(split, sizes, dataset)
  try:
    return TfdsSource(builder, split)
  except NotImplementedError as e:
    folder = builder.data_path
    raise errors.UserError(
      f'{folder} is not in the array_record format. Convert it once by: tfds'
      f' convert_format --dataset_dir={folder} --out_dir=OTHER'
      f' --out_file_format=array_record'
    ) from e
