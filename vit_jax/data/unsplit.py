"""Images without a test split: a fixed order, in which every slice is a fair sample.

An image's place follows from its content and its class alone: names, the order on the
disk and the other classes do not matter. Equal files of a class are neighbours, so a
split parts them at most where a slice ends; a run warns of such copies.
"""

from collections.abc import Sequence
from concurrent import futures
import functools
import hashlib
import os
from typing import Any

import numpy as np

from vit_jax.data import image_files
from vit_jax.data import splits

# What a source says of its order, for the log and `dataset.json`.
SPLIT_BY = "the content of each class's images"

_TRAIN_PERCENT = 80
_THREADS = 16


def default_splits(train: str, test: str) -> tuple[str, str]:
  """Returns the splits of a data set that has 'train' alone.

  A test split 'test' becomes what `train` leaves: the last 20 % if that is
  'train', 10 % if it is 'train[:90%]'. Others are returned as they are.
  """
  if train == 'train' and test == 'test':
    train = f'train[:{_TRAIN_PERCENT}%]'
  name, start, end = splits.percents(train) or ('', 0, 0)
  if (name, start) == ('train', 0) and test == 'test':
    test = f'train[{end}%:]'
  return train, test


def stratified(targets: Sequence[Any], contents: Sequence[bytes]) -> list[int]:
  """Returns the order in which each slice has its share of every target.

  Args:
    targets: one for each image; images with equal targets are spread evenly.
    contents: a hash of each image.
  """
  groups: dict[Any, list[int]] = {}
  for i, target in enumerate(targets):
    groups.setdefault(target, []).append(i)
  places = np.zeros(len(targets))
  for group in groups.values():
    # Equal images get equal places, so that few slices part them.
    ranks = {x: n for n, x in enumerate(sorted({contents[i] for i in group}))}
    for i in group:
      places[i] = (ranks[contents[i]] + 0.5) / len(ranks)
  return sorted(range(len(targets)), key=lambda i: (places[i], contents[i], i))


def hashes(images: Sequence[str | bytes | np.ndarray]) -> list[bytes]:
  """Returns the hash of the content of each image.

  Images are the paths of files, or their bytes, or arrays. Of a file that cannot be read, it is
  the hash of the name.
  """
  with futures.ThreadPoolExecutor(_THREADS) as pool:
    return list(pool.map(_hash, images))


def _hash(image: str | bytes | np.ndarray) -> bytes:
  if isinstance(image, np.ndarray):
    return content_hash(image.tobytes())
  if isinstance(image, bytes):
    return content_hash(image)
  path = image
  try:
    status = os.stat(path)
    return _known_hash(path, status.st_size, status.st_mtime_ns)
  except OSError:  # Training raises or skips it.
    return content_hash(os.path.basename(path).encode(errors='surrogateescape'))


@functools.lru_cache(maxsize=1_000_000)
def _known_hash(path: str, size: int, changed: int) -> bytes:
  """Returns the hash of a file, which is read again only after it has changed."""
  del size, changed
  return content_hash(image_files.read_bytes(path))


def content_hash(data: bytes) -> bytes:
  """Returns a hash of bytes, the same on every machine."""
  return hashlib.blake2b(data, digest_size=16).digest()
