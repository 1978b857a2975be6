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
from vit_jax.data import sources
from vit_jax.data.rows import row_weights
from vit_jax.data.rows import table_files

_EXAMPLES = 5  # Copies that are named.


def _nothing() -> np.ndarray:
  return np.zeros(0)


@dataclasses.dataclass(frozen=True)
class _Facts:
  """What one image is; `reason` says why it cannot be decoded."""

  name: str
  reason: str = ''
  format: str = ''
  mode: str = ''
  size: tuple[int, int] = (0, 0)
  mean: np.ndarray = dataclasses.field(default_factory=_nothing)
  square: np.ndarray = dataclasses.field(default_factory=_nothing)
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
    'copies': pairs of a training and a test image}. Sizes are (smallest, median,
    largest) in pixels; mean and std are those of pixels in [0, 1], by channel.
  """
  names = sources.default_splits(dataset, train, test, columns)
  splits, looks, found = {}, [], []
  for role, split in zip(('train', 'test'), names, strict=True):
    source = sources.get_source(
      dataset, split, data_dir=data_dir, columns=columns
    )
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
  with futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    examine = functools.partial(_examine, source)
    return list(pool.map(examine, range(len(source))))


def _examine(source: sources.Source, index: int) -> _Facts:
  name = f'image {index}'
  try:
    example = source[index]
    image, name = example['image'], example['name']
    header = {'format': 'array', 'mode': 'array'}
    if not isinstance(image, np.ndarray):
      header = _header(image)
      image = decoding.decode(image)
  except (OSError, ValueError) as e:
    return _Facts(
      getattr(e, 'filename', None) or name,
      reason=getattr(e, 'strerror', None) or str(e),
    )
  pixels = image.reshape(-1, image.shape[-1]) / 255
  return _Facts(
    name,
    size=image.shape[:2],
    mean=pixels.mean(0),
    square=(pixels**2).mean(0),
    thumbnail=copies.thumbnail(image),
    **header,
  )


def _header(data: bytes) -> dict[str, str]:
  """Returns format and mode of a file, such as JPEG and RGB."""
  try:
    with Image.open(io.BytesIO(data)) as image:
      return {'format': image.format or 'unknown', 'mode': image.mode}
  except PIL.UnidentifiedImageError:
    return {'format': 'unknown', 'mode': 'unknown'}


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
  mean = np.mean([x.mean for x in good], axis=0)
  square = np.mean([x.square for x in good], axis=0)
  result['mean'] = np.round(mean, 4).tolist()
  result['std'] = np.round(np.sqrt(square - mean**2), 4).tolist()
  return result


def _named(
  pairs: np.ndarray, first: list[_Facts], second: list[_Facts]
) -> dict[str, Any]:
  """Returns how many pairs there are, and the names of some."""
  examples = [[first[i].name, second[j].name] for i, j in pairs[:_EXAMPLES]]
  return {'pairs': len(pairs), 'examples': examples}
