"""Parquet files of repositories of Hugging Face: their configurations and splits.

The README names the files of each, or else their own names tell.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
import os
import pathlib
import re
from typing import Any, TypeAlias

import huggingface_hub

from vit_jax.data import image_files
from vit_jax.data import splits as splits_lib
from vit_jax.runtime import errors

# A folder, or the address of a repository.
Place: TypeAlias = pathlib.Path | str

# Files of each split.
Splits = dict[str, list[pathlib.Path]]

PARQUET = '.parquet'
_DEPTH = 2  # Folders that a Parquet file may be in: <configuration>/<split>.

_PART = re.compile(r'(.+)-\d+-of-\d+(-[0-9a-f]+)?')  # train-00000-of-00002


def parquet_files(folder: pathlib.Path) -> list[pathlib.Path]:
  """Returns the Parquet files of a repository; none where its folders have images."""
  found = []
  for path in _walk(folder, _DEPTH):
    if image_files.is_read(path.name) and path.parent != folder:
      return []  # Predictions, for example, were put beside the images.
    if path.name.lower().endswith(PARQUET):
      found.append(path)
  return sorted(found)


def _walk(folder: pathlib.Path, depth: int) -> Iterator[pathlib.Path]:
  with os.scandir(folder) as entries:
    for entry in entries:
      if entry.name.startswith('.'):
        continue
      if not entry.is_dir():
        yield folder / entry.name
      elif depth:
        yield from _walk(folder / entry.name, depth - 1)


def by_configuration(folder: pathlib.Path) -> dict[str, Splits]:
  """Returns the files of each split of each configuration; empty if there are none."""
  if not folder.is_dir():  # Nothing was downloaded.
    return {}
  found: dict[str, Splits] = {}
  for name, patterns in named_files(folder).items():
    splits = {
      identifier(split): sorted(
        path
        for pattern in globs
        for path in folder.glob(pattern)
        if path.suffix.lower() == PARQUET
      )
      for split, globs in patterns.items()
    }
    found[name] = {split: paths for split, paths in splits.items() if paths}
  if any(found.values()):
    return found
  found = {}
  for path in parquet_files(folder):
    configuration, split = _inferred(path.relative_to(folder))
    found.setdefault(configuration, {}).setdefault(split, []).append(path)
  return found


def named_files(folder: pathlib.Path) -> dict[str, dict[str, Sequence[str]]]:
  """Returns the patterns of each split of each configuration of a README.

  The configuration that it makes the default has that name too.
  """
  try:
    card = huggingface_hub.metadata_load(folder / 'README.md') or {}
  except Exception:  # It is not there, or its YAML has its own errors.
    return {}
  named = {}
  configs = card.get('configs') if isinstance(card, Mapping) else None
  for config in configs if isinstance(configs, list) else []:
    if isinstance(config, Mapping) and 'config_name' in config:
      patterns = _patterns(config.get('data_files'))
      named[str(config['config_name'])] = patterns
      if config.get('default'):
        named['default'] = patterns
  return named


def _patterns(data_files: Any) -> dict[str, Sequence[str]]:
  """Returns the patterns of each split of `data_files` in a README."""
  if isinstance(data_files, Mapping):
    data_files = [{'split': k, 'path': v} for k, v in data_files.items()]
  if isinstance(data_files, str):
    data_files = [{'split': 'train', 'path': data_files}]
  found: dict[str, Sequence[str]] = {}
  for row in data_files if isinstance(data_files, list) else []:
    if isinstance(row, Mapping) and 'split' in row:
      paths = row.get('path')
      paths = paths if isinstance(paths, list) else [paths]
      if known := [path for path in paths if _is_inside(path)]:
        found[str(row['split'])] = known
  return found


def _is_inside(path: Any) -> bool:
  """Whether a pattern of a README is text, and of files of its repository."""
  if not isinstance(path, str) or not path:
    return False
  parts = pathlib.PurePosixPath(path)
  return not parts.is_absolute() and '..' not in parts.parts


def _inferred(path: pathlib.PurePath) -> tuple[str, str]:
  """Returns the configuration and the split that the path of a file tells."""
  folders = [x for x in path.parts[:-1] if x != 'data']
  part = _PART.fullmatch(path.stem)
  split = splits_lib.word(path.stem)
  if part and (
    split or path.parent.name == 'data'
  ):  # Others: part-00000-of-00002.
    split = part[1]
  if folders and (name := splits_lib.word(folders[-1])):
    split = split or name
    folders.pop()
  return '/'.join(folders) or 'default', identifier(split or 'train')


def identifier(split: str) -> str:
  """Returns the name of a split without characters that have another meaning."""
  return re.sub(r'\W', '_', split)


def chosen(names: Collection[str], configuration: str, place: Place) -> str:
  """Returns the name of a configuration; for '' that of the only or default one."""
  name = configuration or (next(iter(names)) if len(names) == 1 else 'default')
  if name in names:
    return name
  advice = 'move the files of the others, or name a default in its README.md.'
  if isinstance(place, str):
    base = place.removesuffix(configuration).rstrip('/')
    advice = f'choose one, {base}/NAME.'
  elif all((place / name).is_dir() for name in names):
    advice = f'choose one, {place}/NAME.'
  raise errors.UserError(
    f'{place} has the configurations {", ".join(sorted(names))}: {advice}'
  )


def of_configuration(
  found: Mapping[str, Splits], configuration: str, place: Place
) -> Splits:
  """Returns the files of one configuration; '' for the only or default one."""
  found = {name: splits for name, splits in found.items() if splits}
  if not found:
    raise errors.UserError(f'{place} has no {PARQUET} files.')
  return found[chosen(found, configuration, place)]
