"""Shards of WebDataset: .tar files with the image and the labels of each example.

Files whose names are equal up to the first dot are one example. Its image has the
suffix of an image, such as `.jpg` rather than `.depth.png`; `.cls` is its class; `.json` has its columns, as the row of a table
has; any other file whose suffix is the name of a column has that column.
"""

from collections.abc import Sequence
import json
import os
import re
from typing import Any

import numpy as np

from vit_jax.configs import common
from vit_jax.data import image_files
from vit_jax.data import splits as splits_lib
from vit_jax.data import unsplit
from vit_jax.data.rows import labelled_rows
from vit_jax.data.rows import shard_index
from vit_jax.data.rows import table_files
from vit_jax.data.rows import table_labels
from vit_jax.runtime import errors

SPLIT_BY = "the names of each class's images"

# The split of shards whose names begin with these words, or longer forms.
_TEST = {'test': 'test', 'val': 'validation'}
_BEGINNING = re.compile(r'(test|val)(?:ing|id|idation)?s?(?![a-z])')

# Places of an image: shard, first byte, number of bytes.
_Place = tuple[int, int, int]


def is_shards(dataset: str) -> bool:
  """Whether a data set is named by the .tar files it is in."""
  return dataset.lower().endswith(common.SHARDS)


class ShardSource(labelled_rows.RowSource):
  """Images in .tar files, read in any order."""

  def __init__(
    self,
    shards: Sequence[str],
    places: np.ndarray,
    names: Sequence[str],
    labels: table_labels.Labels,
    split_by: str,
    ranges: splits_lib.Ranges,
  ):
    super().__init__(names, labels, split_by, ranges)
    self._shards, self._places = shards, places

  def _image(self, index: int) -> bytes:
    shard, offset, size = self._places[index].tolist()
    return image_files.read_bytes(self._shards[shard], offset, size)


def has_splits(dataset: str) -> bool:
  """Whether the names of some shards say that they are for the test."""
  return {*_splits(shard_index.find(dataset))} != {'train'}


def _splits(paths: Sequence[str]) -> list[str]:
  """Returns the split of each shard: that its name begins with, or has in it.

  If no shard is said to be for training, words inside of the names belong to the name
  of the data set, such as crash-test-000.tar: these shards are for training.
  """
  names = [os.path.basename(path).lower() for path in paths]
  words = [splits_lib.word(name) for name in names]
  inside = words if 'train' in words else [''] * len(names)
  found = []
  for name, word in zip(names, inside, strict=True):
    first = _BEGINNING.match(name)
    found.append(_TEST[first[1]] if first else word or 'train')
  return found


def task(dataset: str, columns: table_files.Columns) -> str:
  """Returns the task of shards, see `table_files.complete`."""
  paths = shard_index.find(dataset)[:1]
  _, _, table = _examples(paths, columns)
  return table_files.choose_task(table, dataset, columns)


def open_shards(
  dataset: str,
  split: str,
  columns: table_files.Columns = table_files.DEFAULT,
) -> ShardSource:
  """Opens shards; images are read later.

  Args:
    dataset: paths or addresses, such as 'data/train-{000..099}.tar' or 'data/*.tar'.
    split: TFDS notation, such as 'train[:98%]'. Shards whose names begin with 'test'
      or 'val', or have one of `splits.word` in them, have these splits, all others
      'train'. The
      names of the images fix the order, in which each slice has its share of every
      class.
    columns: names of the columns.

  Raises:
    errors.UserError: if a shard is missing or damaged, or an image has no label.
  """
  paths = shard_index.find(dataset)
  places, names, table = _examples(paths, columns)
  of_shard = _splits(paths)
  of_row = [of_shard[shard] for shard, _, _ in places]
  labels = table_labels.read(table, of_row, dataset, columns, names)
  # In which shard an image lies may change.
  keys = [unsplit.content_hash(x.rpartition(', ')[2].encode()) for x in names]
  chosen, ranges = labelled_rows.of_split(
    split, of_row, labels, lambda rows: [keys[row] for row in rows], dataset
  )
  return ShardSource(
    paths,
    np.array(places)[chosen],
    [names[row] for row in chosen],
    table_labels.chosen(labels, chosen),
    '' if len(set(of_row)) > 1 else SPLIT_BY,
    ranges,
  )


def _examples(
  paths: Sequence[str], columns: table_files.Columns
) -> tuple[list[_Place], list[str], table_files.Table]:
  """Returns place and name of each image, and the columns of its labels."""
  places, names = [], []
  rows: list[dict[str, Any]] = []
  for shard, path in enumerate(paths):
    members = shard_index.read(path)
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for name, offset, size in zip(
      members.names,
      members.offsets.tolist(),
      members.sizes.tolist(),
      strict=True,
    ):
      if image_files.is_hidden(name):
        continue
      key, suffix = _parts(name)
      files = found.setdefault(key, {})
      if suffix in files:
        raise errors.UserError(
          f'{path} has {name} twice, so it is not clear which files are one'
          f' example. Pack the images again, each under a name of its own.'
        )
      files[suffix] = (offset, size)
    for key, files in found.items():
      image = _image(path, key, files, columns)
      if not image:
        continue
      places.append((shard, *files.pop(image)))
      names.append(f'{path}, {key}.{image}')
      rows.append(_fields(path, key, files, columns))
  if not rows:
    raise errors.UserError(
      f'There are no images in {errors.some(paths)}: their names must end in'
      f' {", ".join(image_files.SUFFIXES)}.'
    )
  wanted = [n for n in columns.wanted() if any(n in row for row in rows)]
  return places, names, {n: [row.get(n) for row in rows] for n in wanted}


def _image(
  path: str,
  key: str,
  files: dict[str, tuple[int, int]],
  columns: table_files.Columns,
) -> str:
  """Returns the suffix of the image of an example; '' if it has none.

  It is the one that `columns.image` names. Otherwise pictures come before arrays, and
  those with one suffix, `.jpg`, before those with two, `.depth.png`.
  """
  if columns.image in files:
    return columns.image
  ranks: dict[tuple[bool, bool], list[str]] = {}
  for suffix in files:
    if image_files.is_read(f'.{suffix}'):
      rank = image_files.is_array(f'.{suffix}'), '.' in suffix
      ranks.setdefault(rank, []).append(suffix)
  found = ranks[min(ranks)] if ranks else ['']
  if len(found) > 1:
    raise errors.UserError(
      f'{path}, {key} has several images: {", ".join(sorted(found))}. Set'
      f' config.columns.image={min(found)}, or to another of them.'
    )
  return found[0]


def _parts(name: str) -> tuple[str, str]:
  """Returns the name of an example and the suffix of one of its files."""
  path, _, file = name.rpartition('/')
  key, _, suffix = file.partition('.')
  return f'{path}/{key}' if path else key, suffix.lower()


def _fields(
  path: str,
  key: str,
  files: dict[str, tuple[int, int]],
  columns: table_files.Columns,
) -> dict[str, Any]:
  """Returns the columns of an example."""
  wanted = columns.wanted()
  fields: dict[str, Any] = {}
  for suffix, place in files.items():
    if suffix == 'json':
      text = image_files.read_bytes(path, *place)
      try:
        fields |= json.loads(text)
      except (ValueError, TypeError) as e:
        raise errors.UserError(
          f'{path}, {key}.json is not an object in JSON: {e}'
        ) from e
    elif suffix == 'cls' or suffix in wanted:
      name = columns.label if suffix == 'cls' else suffix
      text = image_files.read_bytes(path, *place)
      fields[name] = text.decode(errors='replace').strip()
  return {name: fields[name] for name in wanted if name in fields}
