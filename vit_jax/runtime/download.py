"""Downloads over HTTPS: resumed if cut, moved into place when whole."""

from collections.abc import Iterator
import contextlib
import hashlib
import http.client
import os
import pathlib
import urllib.error
import urllib.request

from absl import logging
import filelock
import tqdm

from vit_jax.runtime import errors
from vit_jax.runtime import storage

_BUCKETS = 'https://storage.googleapis.com/'
_CHUNK = 1 << 20
_TIMEOUT = 30  # Seconds without a byte.


def https_url(url: str) -> str:
  """Maps `gs://bucket/name` to its public HTTPS address; keeps other URLs."""
  if url.startswith('gs://'):
    return _BUCKETS + url.removeprefix('gs://')
  return url


def is_url(path: str) -> bool:
  """Whether `path` is a URL that can be downloaded."""
  return str(path).startswith(('gs://', 'https://', 'http://'))


@contextlib.contextmanager
def one_process(url: str, path: os.PathLike | str) -> Iterator[None]:
  """Lets one process at a time fetch `url` to `path`, a file or a folder.

  The lock ends with its process, however that ends.

  Raises:
    errors.UserError: for errors of the network and the file system.
  """
  path = storage.local_path(path)
  with _explaining(url):
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(path.with_name(f'{path.name}.lock'))
    try:
      lock.acquire(timeout=0)
    except filelock.Timeout:
      logging.info('Waiting for another process, which downloads %s.', path)
      lock.acquire()
    try:
      yield
    finally:
      # Waiting processes open the file anew at each attempt.
      with contextlib.suppress(OSError):
        os.unlink(lock.lock_file)
      lock.release()


def download(url: str, path: os.PathLike | str, *, sha256: str = '') -> None:
  """Downloads `url` to `path`, unless that exists.

  A cut download resumes where it ended. If several processes need the file, one
  downloads it.

  Args:
    url: `https://`, `http://`, or `gs://` of a public bucket.
    path: where the file goes, whole or not at all; `path.part` until then.
    sha256: expected checksum in hexadecimal; empty for none.

  Raises:
    errors.UserError: if the server cannot be reached or refuses, or the file
      is cut or has another checksum.
  """
  url, path = https_url(url), storage.local_path(path)
  with one_process(url, path):
    if path.exists():
      return
    part = path.with_name(path.name + '.part')
    _fetch(url, part)
    got = file_sha256(part) if sha256 else ''
    if got != sha256:
      part.unlink()
      raise errors.UserError(
        f'{url} arrived damaged: its SHA-256 is {got}, not {sha256}. Try again.'
      )
    os.replace(part, path)


def read(url: str, max_bytes: int) -> bytes:
  """Returns the content of `url`.

  Raises:
    errors.UserError: if the server cannot be reached or refuses, or the content
      has more than `max_bytes`.
  """
  url = https_url(url)
  with (
    _explaining(url),
    urllib.request.urlopen(url, timeout=_TIMEOUT) as response,
  ):
    data = response.read(max_bytes + 1)
  if len(data) > max_bytes:
    raise errors.UserError(f'{url} has more than {max_bytes} bytes.')
  return data


@contextlib.contextmanager
def _explaining(url: str) -> Iterator[None]:
  try:
    yield
  except urllib.error.HTTPError as e:
    raise errors.UserError(f'{url}: HTTP {e.code} {e.reason}.') from e
  except (OSError, ValueError, http.client.HTTPException) as e:
    if isinstance(e, errors.UserError):
      raise
    reason = getattr(e, 'reason', e)
    raise errors.UserError(f'{url} cannot be fetched: {reason}.') from e


def file_sha256(path: os.PathLike) -> str:
  """Returns the SHA-256 of a file in hexadecimal."""
  with open(path, 'rb') as f:
    return hashlib.file_digest(f, 'sha256').hexdigest()


def _fetch(url: str, part: pathlib.Path) -> None:
  """Appends the missing bytes of `url` to `part`."""
  have = part.stat().st_size if part.exists() else 0
  request = urllib.request.Request(url)
  if have:
    request.add_header('Range', f'bytes={have}-')
  try:
    response = urllib.request.urlopen(request, timeout=_TIMEOUT)
  except urllib.error.HTTPError as e:
    if e.code != 416:
      raise
    # The server has no byte after ours: our file is whole, or another one.
    size = e.headers.get('Content-Range', '').rpartition('/')[2]
    if size == str(have):
      return
    part.unlink()
    return _fetch(url, part)
  with response:
    if response.status != 206:  # The server ignores ranges: from the start.
      have = 0
    length = response.headers.get('Content-Length')
    total = have + int(length) if length else None
    bar = tqdm.tqdm(
      desc=part.stem, total=total, initial=have, unit='B', unit_scale=True
    )
    with bar, open(part, 'ab' if have else 'wb') as f:
      for chunk in _chunks(response):
        f.write(chunk)
        bar.update(len(chunk))
  got = part.stat().st_size
  if total is not None and got != total:
    raise OSError(f'cut after {got} of {total} bytes; try again to continue')


def _chunks(response: http.client.HTTPResponse) -> Iterator[bytes]:
  while chunk := response.read(_CHUNK):
    yield chunk
