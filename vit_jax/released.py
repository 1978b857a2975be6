"""Where the released checkpoints are: found on disk, or downloaded."""

import pathlib
import urllib.parse

from vit_jax import download
from vit_jax import errors

_BUCKET = 'gs://vit_models'
_IMAGENET21K = ('ViT-B_16', 'ViT-B_32', 'ViT-L_16', 'ViT-L_32', 'ViT-H_14')
_AUGREG = {  # The best ImageNet-21k file of each (arXiv:2106.10270, Sec. 3).
  'ViT-Ti_16': 'Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0',
  'ViT-S_32': 'S_32-i21k-300ep-lr_0.001-aug_none-wd_0.1-do_0.0-sd_0.0',
  'ViT-S_16': 'S_16-i21k-300ep-lr_0.001-aug_light1-wd_0.03-do_0.0-sd_0.0',
  'ViT-B_8': 'B_8-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0',
}

# Where the released files are, by model name.
RELEASED_URLS = {
  name: f'{_BUCKET}/imagenet21k/{name}.npz' for name in _IMAGENET21K
} | {name: f'{_BUCKET}/augreg/{file}.npz' for name, file in _AUGREG.items()}


def find(name_or_path: str, directory: str = 'checkpoints') -> pathlib.Path:
  """Returns the path of a checkpoint file, downloaded first if need be.

  Args:
    name_or_path: a file, a URL (`https://`, `gs://`), or the name of a released
      model: `directory/<name>.npz`, downloaded to there if it is absent.
    directory: a folder, or a URL below which `<name>.npz` is; what comes from a
      URL is kept in `checkpoints/`.

  Raises:
    errors.UserError: if it is not there and cannot be downloaded; the message
      says which file is missing and where to put it.
  """
  if download.is_url(name_or_path):
    return _cached(name_or_path)
  path = pathlib.Path(name_or_path)
  if path.is_file():
    return path
  if path.suffix == '.npz' or len(path.parts) > 1:
    raise errors.UserError(f'There is no checkpoint file {path.resolve()}.')
  if download.is_url(directory):
    url = f'{directory.rstrip("/")}/{name_or_path}.npz'
    return _cached(url)
  path = pathlib.Path(directory) / f'{name_or_path}.npz'
  if not path.is_file():
    _download_released(name_or_path, path)
  return path


def _cached(url: str) -> pathlib.Path:
  # The whole path: several buckets have a ViT-B_16.npz.
  parts = urllib.parse.urlsplit(download.https_url(url))
  path = pathlib.Path('checkpoints') / parts.netloc / parts.path.lstrip('/')
  if not path.is_file():
    _download(url, path)
  return path


def _download_released(name: str, path: pathlib.Path) -> None:
  if name not in RELEASED_URLS:
    raise errors.UserError(
      f'{path} is missing and no public source of {name!r} is known. Put the'
      f' file there, give its path with --config.pretrained=FILE, or train'
      f' from scratch with --config.pretrained= (empty). Known by name:'
      f' {", ".join(sorted(RELEASED_URLS))}.'
    )
  _download(RELEASED_URLS[name], path)


def _download(url: str, path: pathlib.Path) -> None:
  try:
    download.download(url, path)
  except errors.UserError as e:
    raise errors.UserError(
      f'{path} is missing and could not be downloaded. {e} Fetch it where there'
      f' is internet and put it at {path.resolve()}; sources are'
      f' {download.https_url(url)} and the timm and google organisations on'
      f' Hugging Face; another folder or bucket is set by'
      f' --config.pretrained_dir, another file by --config.pretrained.'
    ) from e
