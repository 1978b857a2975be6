"""Random-access sources of labelled images, by name or folder.

A source has a length, `class_names`, `image_shape` (or None where sizes differ)
and yields {'image': uint8 [H, W, C] or the bytes of a file, 'label': int,
'name': str}. It can be pickled into worker processes.
"""

from collections.abc import Sequence
import functools
import hashlib
import os
import pathlib
import re
from typing import Any, Protocol, runtime_checkable

import numpy as np
import tensorflow_datasets as tfds

from vit_jax import errors
from vit_jax.data import cifar

IMAGE_SUFFIXES = ('.jpg', '.jpeg', '.png', '.webp', '.bmp')
_VALIDATION_NAMES = ('test', 'val', 'valid', 'validation')


@runtime_checkable
class Source(Protocol):
  """What the pipeline reads; see the module's docstring."""

  class_names: Sequence[str]
  image_shape: tuple[int, int, int] | None

  def __len__(self) -> int: ...

  def __getitem__(self, index: int) -> dict[str, Any]: ...


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
    return {
      'image': pathlib.Path(path).read_bytes(),
      'label': label,
      'name': path,
    }


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
    self._records = builder.as_data_source(
      split, decoders={'image': tfds.decode.SkipDecoding()}
    )

  def __len__(self) -> int:
    return len(self._records)

  def __getitem__(self, index: int) -> dict[str, Any]:
    record = self._records[index]
    return {
      'image': record['image'],
      'label': int(record['label']),
      'name': f'{self._name}, record {index}',
    }


def get_source(
  dataset: str, split: str, *, data_dir: str | None = None
) -> Source:
  """Returns a split of a data set.

  Args:
    dataset: a folder `{split}/{class}/{image}`, 'digits', 'cifar10',
      'cifar100', or the name of a TFDS data set.
    split: in TFDS notation, such as 'train[:98%]' or 'train+test[100:]'. The
      files of a folder are in a fixed random order, so that a slice has every
      class; where a folder has no 'test', 'val' and like stand in for it.
    data_dir: where TFDS data sets and CIFAR are; None for the TFDS default.

  Raises:
    errors.UserError: if there is no such data set or split, or it is empty.
  """
  root = pathlib.Path(data_dir or os.path.expanduser('~/tensorflow_datasets'))
  if dataset == 'digits':
    return _array_source(*_digits(), split, dataset)
  if dataset in cifar.NAMES:
    return _array_source(*cifar.load(dataset, root), split, dataset)
  if os.path.isdir(dataset):
    return _folder_source(pathlib.Path(dataset), split)
  if not dataset or os.sep in dataset or dataset.startswith('.'):
    raise errors.UserError(
      f'config.dataset is {dataset!r}, which is no folder here. Give a folder'
      f' with train/<class>/<image> and test/<class>/<image>, or a name.'
    )
  return _tfds_source(dataset, split, root)


def parse_split(
  split: str, sizes: dict[str, int], dataset: str
) -> list[tuple[str, int, int]]:
  """Returns [(name, from, to)] for a split in TFDS notation.

  Raises:
    errors.UserError: if it cannot be read, names no split or is empty.
  """
  infos = tfds.core.SplitDict(
    [
      tfds.core.SplitInfo(name=name, shard_lengths=[size], num_bytes=0)
      for name, size in sizes.items()
    ]
  )
  try:
    parts = tfds.core.ReadInstruction.from_spec(split).to_absolute(infos)
  except (ValueError, AssertionError, KeyError) as e:
    raise errors.UserError(
      f'Split {split!r} of {dataset} cannot be read. There are'
      f' {", ".join(f"{k} ({n} images)" for k, n in sizes.items())}; slices'
      f" look like 'train[:98%]' or 'train[100:200]+test'."
    ) from e
  ranges = [
    (p.splitname, p.from_ or 0, sizes[p.splitname] if p.to is None else p.to)
    for p in parts
  ]
  if not any(end > start for _, start, end in ranges):
    raise errors.UserError(
      f'Split {split!r} of {dataset} is empty: it has {sizes} images.'
    )
  return ranges


def _array_source(
  splits: dict[str, tuple[np.ndarray, np.ndarray]],
  class_names: Sequence[str],
  split: str,
  dataset: str,
) -> ArraySource:
  sizes = {name: len(labels) for name, (_, labels) in splits.items()}
  parts = parse_split(split, sizes, dataset)
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


def _folder_source(root: pathlib.Path, split: str) -> FileSource:
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
  for name in _VALIDATION_NAMES[1:]:
    if 'test' not in splits and name in splits:
      splits['test'] = splits.pop(name)
  class_names = sorted(set().union(*splits.values()))
  for name, classes in splits.items():
    missing = sorted(set(class_names) - set(classes))
    if missing:
      raise errors.UserError(
        f'{root / name} has no images of {len(missing)} of'
        f' {len(class_names)} classes: {", ".join(missing[:5])}. Each split'
        f' needs a folder with images for each class.'
      )
  files = {
    name: _shuffled(
      [(f, class_names.index(c)) for c in classes for f in classes[c]], root
    )
    for name, classes in splits.items()
  }
  sizes = {name: len(x) for name, x in files.items()}

  def known(match: re.Match) -> str:
    name = match[0]
    return name if name in files or name not in _VALIDATION_NAMES else 'test'

  parts = parse_split(re.sub(r'[a-z]\w*', known, split), sizes, str(root))
  chosen = [file for n, a, b in parts for file in files[n][a:b]]
  return FileSource(chosen, class_names)


def _class_folders(folder: pathlib.Path) -> dict[str, list[str]]:
  """Returns {class: files}, those of nested folders included."""
  classes = {}
  for entry in os.scandir(folder):
    if entry.is_dir() and not entry.name.startswith('.'):
      files = [
        os.path.join(parent, name)
        for parent, _, names in os.walk(entry.path, followlinks=True)
        for name in names
        if name.lower().endswith(IMAGE_SUFFIXES) and not name.startswith('.')
      ]
      if files:
        classes[entry.name] = sorted(files)
  return classes


def _shuffled(
  files: list[tuple[str, int]], root: pathlib.Path
) -> list[tuple[str, int]]:
  # By a hash of the name below the root: the same order on every machine.
  def key(file: tuple[str, int]) -> bytes:
    name = os.path.relpath(file[0], root).replace(os.sep, '/')
    return hashlib.md5(name.encode(errors='surrogateescape')).digest()

  return sorted(files, key=key)


@functools.cache
def _tfds_builder(dataset: str, root: pathlib.Path) -> tfds.core.DatasetBuilder:
  missing = (
    f'Prepare it once, with `pip install vit_jax[prepare]`, by:'
    f' python -m vit_jax.data.prepare {dataset} --data_dir={root}'
  )
  versions = [p for p in sorted(root.glob(f'{dataset}/**/dataset_info.json'))]
  if not versions:
    raise errors.UserError(
      f'{dataset} is neither a folder nor prepared in {root}. {missing}'
    )
  # From the files alone: the code of a catalogue entry may need TensorFlow.
  return tfds.builder_from_directory(versions[-1].parent)


def _tfds_source(dataset: str, split: str, root: pathlib.Path) -> TfdsSource:
  builder = _tfds_builder(dataset, root)
  sizes = {k: v.num_examples for k, v in builder.info.splits.items()}
  parse_split(split, sizes, dataset)
  try:
    return TfdsSource(builder, split)
  except NotImplementedError as e:
    folder = builder.data_path
    raise errors.UserError(
      f'{folder} is not in the array_record format. Convert it once by: tfds'
      f' convert_format --dataset_dir={folder} --out_dir=OTHER'
      f' --out_file_format=array_record'
    ) from e
