"""ReaL labels of ImageNet's validation images (arXiv:2006.07159)."""

from collections.abc import Sequence
import json
import pathlib
import re

from jaxtyping import Int
import numpy as np

from vit_jax.data import class_names as names_lib
from vit_jax.data import sources
from vit_jax.data import wordnet
from vit_jax.runtime import download
from vit_jax.runtime import errors
from vit_jax.runtime import storage

URL = (
  'https://raw.githubusercontent.com/google-research/reassessed-imagenet/master'
  '/real.json'
)
_VALIDATION_FILE = re.compile(r'ILSVRC2012_val_(\d{8})')


def find(path: str, data_dir: str | None = None) -> pathlib.Path:
  """Returns the path of `real.json`, a file or an address.

  An address is downloaded once to `imagenet_real/` of the folder of data sets.
  Raises `errors.UserError` if that fails.
  """
  if not download.is_url(path):
    return storage.local_path(path)
  name = path.rpartition('/')[2]
  file = sources.data_root(data_dir) / 'imagenet_real' / name
  if not file.is_file():
    try:
      download.download(path, file)
    except errors.UserError as e:
      raise errors.UserError(
        f'{e} Put the file at {file}, or give its path: real_labels=FILE.'
      ) from e
  return file


def numbers(class_names: Sequence[str]) -> list[int]:
  """Returns the numbers that ReaL labels give to classes of a model.

  Raises:
    errors.UserError: unless all are classes of ImageNet, by WordNet ids, words, or
      the numbers that 1000 classes without names have.
  """
  imagenet = wordnet.imagenet_ids()
  if list(class_names) == names_lib.numbered(len(imagenet)):
    return list(range(len(imagenet)))
  ids = wordnet.ids(class_names)
  if ids is None:
    raise errors.UserError(
      f'ReaL labels are those of ImageNet, but the {len(class_names)} classes of the'
      f' model are {", ".join(class_names[:3])}, ... Evaluate without --real.'
    )
  return [imagenet.index(key) for key in ids]


def read(
  path: pathlib.Path, source: sources.Source, places: Int[np.ndarray, ' n']
) -> list[list[int]]:
  """Returns the labels, several or none, of the images at `places` of a source.

  The names of the images must be those of the original files.
  """
  try:
    labels = json.loads(path.read_text(encoding='utf-8'))
    labels = [[int(label) for label in row] for row in labels]
  except OSError as e:
    raise errors.UserError(f'{path} cannot be read: {e.strerror}.') from e
  except (TypeError, ValueError) as e:
    raise errors.UserError(
      f'{path} is not a list of lists of labels, as real.json is: {e}.'
    ) from e
  rows = []
  for place in places:
    name = source[int(place)]['name']
    match = _VALIDATION_FILE.search(name)
    if not match or not 0 < int(match[1]) <= len(labels):
      raise errors.UserError(
        f'{name} is not a validation image of ImageNet,'
        f' ILSVRC2012_val_00000001.JPEG to {len(labels):08d}: it has no ReaL'
        f' labels.'
      )
    rows.append(labels[int(match[1]) - 1])
  return rows
