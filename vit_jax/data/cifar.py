"""CIFAR-10 and CIFAR-100 from their authors' archives, without TensorFlow."""

import dataclasses
import functools
import pathlib
import tarfile

from jaxtyping import Int32, UInt8
import numpy as np

from vit_jax.runtime import download
from vit_jax.runtime import errors

_URL = 'https://www.cs.toronto.edu/~kriz/'
_SIDE = 32


@dataclasses.dataclass(frozen=True)
class _Archive:
  name: str
  sha256: str
  splits: dict[str, tuple[str, ...]]
  class_names: str
  label_bytes: int  # The last of them is the (fine) label.


_ARCHIVES = {
  'cifar10': _Archive(
    name='cifar-10-binary.tar.gz',
    sha256='c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd',
    splits={
      'train': tuple(f'data_batch_{i}.bin' for i in range(1, 6)),
      'test': ('test_batch.bin',),
    },
    class_names='batches.meta.txt',
    label_bytes=1,
  ),
  'cifar100': _Archive(
    name='cifar-100-binary.tar.gz',
    sha256='58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec',
    splits={'train': ('train.bin',), 'test': ('test.bin',)},
    class_names='fine_label_names.txt',
    label_bytes=2,
  ),
}

NAMES = tuple(_ARCHIVES)

Images = UInt8[np.ndarray, 'N 32 32 3']
Labels = Int32[np.ndarray, ' N']
Splits = dict[str, tuple[Images, Labels]]


@functools.lru_cache(maxsize=1)  # Both splits are in one archive.
def load(name: str, directory: pathlib.Path) -> tuple[Splits, list[str]]:
  """Reads 'cifar10' or 'cifar100'; downloads and checks its archive once.

  Returns {split: (images, labels)} in the order of the archive, and class names.
  """
  archive = _ARCHIVES[name]
  path = directory / archive.name
  if not path.is_file():
    try:
      download.download(_URL + archive.name, path, sha256=archive.sha256)
    except errors.UserError as e:
      raise errors.UserError(
        f'{name} is not at {path} and could not be downloaded. {e} Put the'
        f' file there, or set config.tfds_data_dir to its folder.'
      ) from e
  try:
    return _read(archive, path)
  except (tarfile.TarError, OSError, EOFError, KeyError, ValueError) as e:
    raise errors.UserError(
      f'{path} cannot be read ({e}). Delete it to download it again.'
    ) from e


def _read(archive: _Archive, path: pathlib.Path) -> tuple[Splits, list[str]]:
  wanted = {f for files in archive.splits.values() for f in files}
  wanted.add(archive.class_names)
  content = {}
  with tarfile.open(path) as tar:
    for member in tar:
      name = pathlib.PurePosixPath(member.name).name
      is_wanted = member.isfile() and name in wanted
      if is_wanted and (file := tar.extractfile(member)):
        content[name] = file.read()
  class_names = content[archive.class_names].decode().split()
  splits = {
    split: _parse(b''.join(content[f] for f in files), archive.label_bytes)
    for split, files in archive.splits.items()
  }
  return splits, class_names


def _parse(data: bytes, label_bytes: int) -> tuple[Images, Labels]:
  records = np.frombuffer(data, np.uint8)
  records = records.reshape(-1, label_bytes + _SIDE * _SIDE * 3)
  images = records[:, label_bytes:].reshape(-1, 3, _SIDE, _SIDE)
  images = np.ascontiguousarray(images.transpose(0, 2, 3, 1))
  return images, records[:, label_bytes - 1].astype(np.int32)
