"""Finds pretrained weights on disk, or downloads them."""

import csv
import hashlib
import math
import pathlib
import shutil
import urllib.parse

from absl import logging
import huggingface_hub

from vit_jax.configs import models as model_configs
from vit_jax.configs import registry
from vit_jax.configs import spec
from vit_jax.runtime import download
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import hub_errors
from vit_jax.runtime import storage

_HUB = 'hf://'
_HUB_FILES = [
  'config.json',
  'preprocessor_config.json',
  'processor_config.json',
  'model.safetensors',
  'model.safetensors.index.json',
  'model-*-of-*.safetensors',
  'tokenizer.json',
  'tokenizer_config.json',
  'vocab.json',
  'merges.txt',
  'spiece.model',
  'tokenizer.model',
]

# Fetched from repositories without others, because many have both.
_OPEN_CLIP_FILES = ['open_clip_config.json', 'open_clip_model.safetensors']

# A name with one of these endings is a path.
_SUFFIXES = (
  *('.npz', '.safetensors', '.pth', '.pt', '.bin', '.ckpt', '.h5', '.onnx'),
  *('.msgpack', '.pkl', '.tar', '.gz', '.zip'),
)


def find(name_or_path: str, directory: str = 'checkpoints') -> pathlib.Path:
  """Returns the path of weights, downloaded first if need be.

  Args:
    name_or_path: a file or folder; a URL (`https://`, `gs://`); a repository of
      the Hugging Face hub, `hf://ORGANISATION/NAME` or with `@REVISION`; the
      name of a registry entry: `directory/<name>.npz` or the folder
      `directory/<name>`, downloaded if neither exists; or an AugReg model such
      as `R_Ti_16`: the best file in `directory/index.csv`.
    directory: a folder, or the URL of one. Files from URLs and the hub are kept
      in `checkpoints/`.

  Raises:
    errors.UserError: if it does not exist and cannot be downloaded; the message
      names the missing file and where to put it.
  """
  if name_or_path.startswith(_HUB):
    name = name_or_path.removeprefix(_HUB)
    folder = pathlib.Path('checkpoints/huggingface.co') / name
    return _hub_folder(name_or_path, folder)
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
  return _in_folders(path) or _download_released(name_or_path, path)


def here(name_or_path: str, directory: str) -> pathlib.Path | None:
  """Returns the path of weights that are on this machine by path or name, or None."""
  if storage.is_address(name_or_path):
    return None
  path = storage.local_path(name_or_path)
  if path.exists():
    return path
  if storage.is_address(directory):
    return None
  return _in_folders(storage.local_path(directory) / f'{name_or_path}.npz')


def _in_folders(path: pathlib.Path) -> pathlib.Path | None:
  """Returns a file, the folder of that name, or the file of the package."""
  for candidate in (path, path.with_suffix(''), _packaged() / path.name):
    if candidate.exists():
      return candidate
  return None


def _packaged() -> pathlib.Path:
  return storage.packaged(inside='checkpoints', beside='checkpoints')


def names_here(directory: str = 'checkpoints') -> list[str]:
  """Returns the names of weights in a folder and in the package."""
  folders = (storage.local_path(directory), _packaged())
  return sorted({path.stem for f in folders for path in f.glob('*.npz')})


def best_augreg(model: str, directory: str) -> str:
  """Returns the file name, without `.npz`, of the best weights of `R_Ti_16`.

  Best is the row of `index.csv` in a folder or URL that has this model, `ds`
  'i21k' (ImageNet-21k) and the highest `final_val`, as the paper recommends
  (arXiv:2106.10270, Sec. 4.5).

  Raises:
    errors.UserError: if the index is missing or has no such row.
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
      f'{path} cannot be read ({e.strerror}); it ranks the weights of {model}.'
      f' Give the whole name of a file instead, or set config.pretrained_dir to'
      f' the folder of the index.'
    ) from e
  except (KeyError, TypeError, ValueError, csv.Error) as e:
    raise errors.UserError(f'{path} is not an AugReg index: {e!r}.') from e
  if not rows:
    raise errors.UserError(f'{path} has no ImageNet-21k weights of {model}.')
  final_val, name = max(rows)
  logging.info('%s: %s is best, final_val %.3f.', path, name, final_val)
  return name


def _cached(url: str) -> pathlib.Path:
  # The path keeps the bucket, because several have a ViT-B_16.npz.
  parts = urllib.parse.urlsplit(download.https_url(url))
  path = pathlib.Path('checkpoints') / parts.netloc / parts.path.lstrip('/')
  if '..' in path.parts:
    raise errors.UserError(f'{url} has .. in its path. Give it without.')
  if parts.query:  # It may choose the file.
    digest = hashlib.sha256(parts.query.encode()).hexdigest()[:16]
    path = path.parent / digest / path.name
  return download_first([url], path)


def _download_released(name: str, path: pathlib.Path) -> pathlib.Path:
  entry = registry.entries().get(name)
  if entry is None:
    hint = errors.did_you_mean(name, registry.entries())
    raise errors.UserError(
      f'{path} is missing and no public source of {name!r} is known.{hint} Put'
      f' the file there, or give its path instead of the name. vit-jax models'
      f' lists the known names.'
    )
  if not entry.sources:
    raise errors.UserError(
      f'{path} is missing from the installed package. Install it again.'
    )
  return download_first(entry.sources, path)


def download_first(sources: list[str], path: pathlib.Path) -> pathlib.Path:
  """Downloads the first source that works, unless `path` exists.

  Returns:
    `path`, or for the Hugging Face hub a folder, `path` without its suffix.

  Raises:
    errors.UserError: if no source works; the message has each reason.
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
    f'{path} is missing and could not be downloaded. {" ".join(reasons)} Download'
    f' it elsewhere and put it at {path.resolve()}, or give the path of a file'
    f' instead of the name. To search another folder or bucket, set'
    f' config.pretrained_dir.'
  )


def _download(source: str, path: pathlib.Path) -> pathlib.Path:
  if source.startswith(_HUB):
    return _hub_folder(source, path.with_suffix(''))
  download.download(source, path)
  return path


def _hub_folder(source: str, path: pathlib.Path) -> pathlib.Path:
  """Downloads hf://ORGANISATION/NAME[@REVISION], unless the folder exists.

  `huggingface_hub` reads the token, the mirror and the offline mode from the
  environment: HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE.
  """
  repository, _, revision = source.removeprefix(_HUB).partition('@')
  with download.one_process(source, path):
    if not path.is_dir():
      with files.replaced_folder(path) as folder:
        for patterns in (_HUB_FILES, _OPEN_CLIP_FILES):
          if any(folder.glob('*.safetensors')):
            break
          try:
            huggingface_hub.snapshot_download(
              repository,
              revision=revision or None,
              local_dir=folder,
              allow_patterns=patterns,
            )
          except Exception as e:  # Its HTTP client has errors of its own.
            reason = hub_errors.explain(e, repository)
            raise errors.UserError(f'{source}: {reason}') from e
        shutil.rmtree(folder / '.cache', ignore_errors=True)
  return path


def lit_name(model: str) -> str | None:
  """Returns `LiT-B16B` for itself or `lit_b16b`; None for other names."""
  for name, config in model_configs.MODEL_CONFIGS.items():
    names = (name, model_configs.short_name(name))
    if spec.has_texts(config) and model in names:
      return name
  return None


def find_vocabulary(
  model: model_configs.ModelConfig, path: str, directory: str
) -> str:
  """Returns the path of the tokeniser's file of a model with two towers.

  Args:
    model: config of the model.
    path: the user's file; '' for the file of the released model.
    directory: folder of released files, or the URL of one.

  Raises:
    errors.UserError: if no file is known.
  """
  if path:
    return path
  name = lit_name(model['model_name'] or '')
  if name is None:
    raise errors.UserError(
      f'{model["model_name"]} is not a released model, so its vocabulary is not'
      f' known. Set config.vocabulary=FILE.'
    )
  source = registry.entries()[name].vocabulary
  file = source.split('/')[-1]
  if download.is_url(directory):
    directory, source = 'checkpoints', f'{directory}/{file}'
  return str(download_first([source], storage.local_path(directory) / file))
