"""Finds the files of data sets of Hugging Face: saved folders, repositories, addresses.

`Dataset.save_to_disk` writes Arrow files with `state.json`, `DatasetDict` a folder of
these for each split. A repository has Parquet files, see `repositories`.
"""

from collections.abc import Sequence
import functools
import pathlib
import re

from absl import logging
import huggingface_hub
from huggingface_hub import utils as hub_utils

from vit_jax.data.rows import repositories
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import hub_errors
from vit_jax.runtime import storage

_HUB = 'hf://datasets/'
_ADDRESS = re.compile(
  r'hf://datasets/(?P<name>[\w.-]+(/[\w.-]+)?)(@(?P<revision>[^/]+))?(/(?P<config>.+))?'
)
_CONVERTED = (
  'refs/convert/parquet'  # Where the hub puts Parquet of all data sets.
)
_PARTIAL = 'partial-'  # How folders there begin that have the first gigabytes.
_STATE, _DICT = 'state.json', 'dataset_dict.json'


def is_named(dataset: str) -> bool:
  """Whether a data set is an address, or a folder of Arrow or Parquet files."""
  if dataset.startswith(_HUB):
    return True
  if not dataset or storage.is_address(dataset):
    return False
  folder = storage.local_path(dataset)
  if not folder.is_dir():
    return False
  saved = ((folder / name).is_file() for name in (_STATE, _DICT))
  try:
    return any(saved) or bool(repositories.parquet_files(folder))
  except OSError:  # Whoever reads the images says that it cannot be read.
    return False


def find(place: repositories.Place) -> repositories.Splits:
  """Returns the files of each split, downloaded first if need be.

  Args:
    place: a folder; or `hf://datasets/USER/NAME[@REVISION][/CONFIGURATION]`. Files
      of the hub are kept in the cache of `huggingface_hub`.

  Raises:
    errors.UserError: if there are none, if several configurations have some, or if
      they cannot be downloaded.
  """
  if isinstance(place, str):
    return _downloaded(place)
  if (place / _DICT).is_file():
    names = files.read_json(place / _DICT).get('splits', [])
    return {
      repositories.identifier(name): _saved(place / name) for name in names
    }
  if (place / _STATE).is_file():
    return {'train': _saved(place)}
  return repositories.of_configuration(
    repositories.by_configuration(place), '', place
  )


def _saved(folder: pathlib.Path) -> list[pathlib.Path]:
  """Returns the files that `Dataset.save_to_disk` wrote."""
  state = files.read_json(folder / _STATE)
  if not state.get('_data_files') or state.get('_indices_data_files'):
    raise errors.UserError(
      f'{folder} is not a data set as save_to_disk of a current version of'
      f' `datasets` writes it: its {_STATE} names no files, or files of indices.'
      f' Save it again.'
    )
  return [folder / file['filename'] for file in state['_data_files']]


@functools.cache  # A run sees one revision.
def _downloaded(address: str) -> repositories.Splits:
  match = _ADDRESS.fullmatch(address)
  if match is None:
    raise errors.UserError(
      f'The data set is {address!r}, must look like {_HUB}USER/NAME, or'
      f' {_HUB}USER/NAME@REVISION/CONFIGURATION.'
    )
  configuration = match['config'] or ''
  for revision in (match['revision'], _CONVERTED):
    get = functools.partial(_snapshot, address, match['name'], revision)
    globs = [f'*{repositories.PARQUET}']
    named = {}
    if revision != _CONVERTED:  # There are only Parquet files.
      named = repositories.named_files(get(['README.md']))
    if named:
      patterns = named[
        repositories.chosen(named, configuration, address)
      ].values()
      globs = [_of_parquet(x) for split in patterns for x in split]
    found = repositories.by_configuration(get(globs))
    if any(found.values()) or match['revision']:
      break
  splits = repositories.of_configuration(found, configuration, address)
  for split, paths in splits.items():
    if any(path.parent.name.startswith(_PARTIAL) for path in paths):
      logging.warning(
        '%s: the hub has converted only a part of %s.', address, split
      )
  return splits


def _of_parquet(pattern: str) -> str:
  """Returns a pattern of the Parquet files that another one names."""
  return (
    pattern.removesuffix(repositories.PARQUET).rstrip('*')
    + f'*{repositories.PARQUET}'
  )


def _snapshot(
  address: str, name: str, revision: str | None, patterns: Sequence[str]
) -> pathlib.Path:
  """Downloads files of a repository; returns the folder that they are in.

  `huggingface_hub` reads the token, the mirror and the offline mode from the
  environment: HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE.
  """
  try:
    return storage.local_path(
      huggingface_hub.snapshot_download(
        name,
        repo_type='dataset',
        revision=revision,
        allow_patterns=list(patterns),
      )
    )
  except Exception as e:  # Its HTTP client has errors of its own.
    is_missing = isinstance(e, hub_utils.RevisionNotFoundError)
    if is_missing and revision == _CONVERTED:
      raise errors.UserError(
        f'{address} has no {repositories.PARQUET} files.'
      ) from None
    reason = hub_errors.explain(e, f'datasets/{name}')
    raise errors.UserError(f'{address}: {reason}') from e
