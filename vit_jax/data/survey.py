"""What a data set has: counts, sizes, formats, broken files, copies, mean and std."""

import collections
from concurrent import futures
import dataclasses
import functools
import io
import os
from typing import Any

import numpy as np
import PIL
from PIL import Image

from vit_jax.data import class_counts
from vit_jax.data import copies
from vit_jax.data import decoding
from vit_jax.data import numbers
from vit_jax.data import pixel_values
from vit_jax.data import sources
from vit_jax.data import stacks
from vit_jax.data.rows import row_weights
from vit_jax.data.rows import table_files


@dataclasses.dataclass(frozen=True)
class _Facts:
  """What one image is; `reason` says why it cannot be decoded."""

  name: str
  reason: str = ''
  format: str = ''
  mode: str = ''
  size: tuple[int, int] = (0, 0)
  moments: pixel_values.Moments | None = None
  thumbnail: np.ndarray | None = None


def of_dataset(
  dataset: str,
  train: str = 'train',
  test: str = 'test',
  *,
  data_dir: str | None = None,
  columns: table_files.Columns = table_files.DEFAULT,
) -> dict[str, Any]:
  """Decodes all images of a data set and returns what it has, as JSON types.

  Args:
    dataset: see `sources.get_source`.
    train: split to train on.
    test: split to test.
    data_dir: folder of TFDS data sets and CIFAR; None for the TFDS default.
    columns: columns of a table.

  Returns:
    {'splits': {'train': {'split', 'images', 'classes', 'numbers', 'weights', 'unread',
    'formats', 'modes', 'heights', 'widths', 'broken', 'mean', 'std', 'copies'},
    'test': ...},
    'copies': of training images among the test images}. Copies are {'images': how
    many there are, 'pairs': [first image, its copy]}. Sizes are (smallest, median,
    largest) in pixels; mean and std are those of pixels in [0, 1], by channel.
  """
  names = sources.default_splits(dataset, train, test, columns)
  splits, looks, found = {}, [], []
  opened = [
    sources.get_source(dataset, split, data_dir=data_dir, columns=columns)
    for split in names
  ]
  settings = ('config.pp.train', 'config.pp.test')
  sources.refuse_overlap(dict(zip(settings, names, strict=True)), opened)
  for role, split, source in zip(('train', 'test'), names, opened, strict=True):
    facts = _examine_all(source)
    looks.append(copies.of_thumbnails([x.thumbnail for x in facts]))
    found.append(facts)
    splits[role] = {
      'split': split,
      'images': len(source),
      'split_by': getattr(source, 'split_by', ''),
      'classes': class_counts.of_source(source),
      'numbers': numbers.of_source(source),
      'weights': row_weights.facts(source),
      'unread': dict(getattr(source, 'unread', {})),
      **_summary(facts),
      'copies': _named(copies.within(looks[-1]), facts, facts),
    }
  pairs = copies.between(*looks)
  return {'splits': splits, 'copies': _named(pairs, *found)}


def _examine_all(source: sources.Source) -> list[_Facts]:
  channels = pixel_values.kind(source).channels or 3
  with futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    examine = functools.partial(_examine, source, channels)
    return list(pool.map(examine, range(len(source))))


def _examine(source: sources.Source, channels: int, index: int) -> _Facts:
  name = f'image {index}'
  try:
    example = source[index]
    data, name = example['image'], example['name']
    image = decoding.as_pixels(data, channels)  # Refuses what is damaged.
    header = _header(data)
  except (OSError, ValueError) as e:
    return _Facts(
      getattr(e, 'filename', None) or name,
      reason=getattr(e, 'strerror', None) or str(e),
    )
  return _Facts(
    name,
    size=image.shape[:2],
    moments=pixel_values.moments(image),
    thumbnail=copies.thumbnail(image),
    **header,
  )


def _header(data: bytes | np.ndarray) -> dict[str, str]:
  """Returns format and mode of an image, such as JPEG and RGB."""
  if isinstance(data, np.ndarray):
    return {'format': 'array', 'mode': _mode(data)}
  array = decoding.read_stack(data)
  if array is not None:
    name = 'NPY' if stacks.is_npy(data) else 'TIFF'
    return {'format': name, 'mode': _mode(array)}
  try:
    with Image.open(io.BytesIO(data)) as image:
      return {'format': image.format or 'unknown', 'mode': image.mode}
  except PIL.UnidentifiedImageError:
    return {'format': 'unknown', 'mode': 'unknown'}


def _mode(array: np.ndarray) -> str:
  channels = stacks.as_image(array).shape[-1]
  return f'{array.dtype.name}, {channels} channel{"s" * (channels > 1)}'


def _summary(facts: list[_Facts]) -> dict[str, Any]:
  good = [x for x in facts if not x.reason]
  result: dict[str, Any] = {
    'broken': [{'name': x.name, 'reason': x.reason} for x in facts if x.reason],
    'formats': dict(collections.Counter(x.format for x in good)),
    'modes': dict(collections.Counter(x.mode for x in good)),
  }
  if not good:
    return result
  for axis, name in enumerate(('heights', 'widths')):
    lengths = [x.size[axis] for x in good]
    smallest, median, largest = np.quantile(lengths, (0, 0.5, 1))
    result[name] = [int(smallest), int(median), int(largest)]
  scale = pixel_values.scale([x.moments for x in good if x.moments])
  return result | {name: list(values) for name, values in scale.items()}


def _named(
  pairs: np.ndarray, first: list[_Facts], second: list[_Facts]
) -> dict[str, Any]:
  """Returns how many images are copies, and the names of all pairs."""
  names = [[first[i].name, second[j].name] for i, j in pairs]
  return {'images': len(names), 'pairs': names}
