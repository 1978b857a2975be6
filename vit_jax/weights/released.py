"""Where pretrained weights are: found on disk, or downloaded."""

import contextlib
import csv
import difflib
import math
import pathlib
import urllib.parse

from absl import logging

from vit_jax.configs import models as model_configs
from vit_jax.configs import registry
from vit_jax.runtime import download
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import storage

_HUGGING_FACE = 'https://huggingface.co'
_HUGGING_FACE_FILES = ('config.json', 'model.safetensors')
_PREPROCESSOR = 'preprocessor_config.json'

# What ends in them is a file, not a name, also where it cannot be read.
_SUFFIXES = (
  *('.npz', '.safetensors', '.pth', '.pt', '.bin', '.ckpt', '.h5', '.onnx'),
  *('.msgpack', '.pkl', '.tar', '.gz', '.zip'),
)


def find(name_or_path: str, directory: str = 'checkpoints') -> pathlib.Path:
  """Returns the path of weights, downloaded first if need be.

  Args:
    name_or_path: a file or folder, a URL (`https://`, `gs://`), the name of a
      registry entry: `directory/<name>.npz`, or the folder `directory/<name>`,
      downloaded to there if neither is there; or of an AugReg model, `R_Ti_16`:
      the best file of `directory/index.csv`.
    directory: a folder, or a URL below which `<name>.npz` is; what comes from a
      URL is kept in `checkpoints/`.

  Raises:
    errors.UserError: if it is not there and cannot be downloaded; the message
      says which file is missing and where to put it.
  """
  if download.is_url(name_or_path):
    return _cached(name_or_path)
  path = storage.local_path(name_or_path)
  if path.exists():
    return path
  if path.suffix in _SUFFIXES or len(path.parts) > 1:
    raise errors.UserError(
      f'There is no checkpoint file or folder {path.resolve()}.'
    )
  if name_or_path in model_configs.AUGREG_CONFIGS:
    name_or_path = best_augreg(name_or_path, directory)
  if download.is_url(directory):
    return _cached(f'{directory.rstrip("/")}/{name_or_path}.npz')
  path = storage.local_path(directory) / f'{name_or_path}.npz'
  for candidate in (path, path.with_suffix(''), _packaged() / path.name):
    if candidate.exists():
      return candidate
  return _download_released(name_or_path, path)


def _packaged() -> pathlib.Path:
  return storage.packaged(inside='checkpoints', beside='checkpoints')


def names_here(directory: str = 'checkpoints') -> list[str]:
  """Returns the weights that need no download: of a folder and of the package."""
  folders = (storage.local_path(directory), _packaged())
  return sorted({path.stem for f in folders for path in f.glob('*.npz')})


def best_augreg(model: str, directory: str) -> str:
  """Returns the file name of the best AugReg weights, without `.npz`.

  Args:
    model: `R_Ti_16`, say.
    directory: folder or URL that has `index.csv`; of its rows with this model
      and `ds` 'i21k' (ImageNet-21k), that with the highest `final_val` is taken,
      as the paper recommends (arXiv:2106.10270, Sec. 4.5).

  Raises:
    errors.UserError: if there is no index, or no such row in it.
  """
  if download.is_url(directory):
    path = _cached(f'{directory.rstrip("/")}/index.csv')
  else:
    path = storage.local_path(directory) / 'index.csv'
  try:
    with open(path, encoding='utf-8', newline='') as f:
      rows = [
        (float(row['final_val']), row['filename'])
        for row in csv.DictReader(f)
        if row['ds'] == 'i21k'
        and (row['filename'] or '').split('-')[0] == model
        and math.isfinite(float(row['final_val']))
      ]
  except OSError as e:
    raise errors.UserError(
      f'{path} cannot be read ({e.strerror}), which says which {model} is best.'
      f' Give the whole name of a file instead, or its folder with'
      f' config.pretrained_dir.'
    ) from e
  except (KeyError, TypeError, ValueError, csv.Error) as e:
    raise errors.UserError(f'{path} is no index of AugReg: {e!r}.') from e
  if not rows:
    raise errors.UserError(f'{path} has no ImageNet-21k weights of {model}.')
  final_val, name = max(rows)
  logging.info('%s: %s is best, final_val %.3f.', path, name, final_val)
  return name


def _cached(url: str) -> pathlib.Path:
  # The whole path: several buckets have a ViT-B_16.npz.
  parts = urllib.parse.urlsplit(download.https_url(url))
  path = pathlib.Path('checkpoints') / parts.netloc / parts.path.lstrip('/')
  return download_first([url], path)


def _download_released(name: str, path: pathlib.Path) -> pathlib.Path:
  entry = registry.entries().get(name)
  if entry is None:
    near = difflib.get_close_matches(name, registry.entries(), 1)
    hint = f' Did you mean {near[0]!r}?' if near else ''
    raise errors.UserError(
      f'{path} is missing and no public source of {name!r} is known.{hint} Put the'
      f' file there, give its path with config.pretrained=FILE, or train'
      f' from scratch with config.pretrained= (empty). vit-jax'
      f' models prints what is known by name.'
    )
  if not entry.sources:
    raise errors.UserError(
      f'{path} is missing, and the package, which should have it, is not whole.'
      f' Install it again.'
    )
  return download_first(entry.sources, path)


def download_first(sources: list[str], path: pathlib.Path) -> pathlib.Path:
  """Downloads from the first source that works, unless the file is there.

  Returns:
    `path`; of a repository of Hugging Face a folder, `path` without its suffix.

  Raises:
    errors.UserError: with the reason of each source, if none works.
  """
  if path.is_file():
    return path
  reasons = []
  for source in sources:
    try:
      return _download(source, path)
    except errors.UserError as e:
      reasons.append(str(e))
  raise errors.UserError(
    f'{path} is missing and could not be downloaded. {" ".join(reasons)} Fetch'
    f' it where there is internet and put it at {path.resolve()}, or give the path'
    f' of a file instead of the name. Training looks in another folder or bucket'
    f' with config.pretrained_dir.'
  )


def _download(source: str, path: pathlib.Path) -> pathlib.Path:
  if not source.startswith('hf://'):
    download.download(source, path)
    return path
  url = f'{_HUGGING_FACE}/{source.removeprefix("hf://")}/resolve/main'
  path = path.with_suffix('')
  with download.one_process(path):
    if not path.is_dir():
      _download_hub_folder(url, path)
  return path


def _download_hub_folder(url: str, path: pathlib.Path) -> None:
  with files.replaced_folder(path) as folder:
    for name in _HUGGING_FACE_FILES:
      download.download(f'{url}/{name}', folder / name)
    # timm has none: its config.json says all.
    with contextlib.suppress(errors.UserError):
      download.download(f'{url}/{_PREPROCESSOR}', folder / _PREPROCESSOR)
