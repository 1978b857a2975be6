"""What guards the workdir of a run: one run at a time, on the data it began with."""

from collections.abc import Iterator, Mapping
import contextlib
import hashlib
import os
from typing import Any

from absl import logging
import filelock
import flax.traverse_util
import jax
import numpy as np

from vit_jax.data import image_files
from vit_jax.data import sources
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import storage

# Number of images and hash of a split, by the setting that names it.
Fingerprints = dict[str, dict[str, int | str]]

DATA = 'dataset.json'  # What the run was trained and evaluated on.

_LOCK = '.lock'
_COMPARED = ('images', 'sha256')
_SAMPLES = 64  # Images whose bytes are looked at.


@contextlib.contextmanager
def guarded(workdir: str) -> Iterator[None]:
  """Keeps other runs out, and turns a full or read-only disk into one line.

  The lock ends with the process, however that ends. At an address, of a bucket,
  there is none.

  Raises:
    errors.UserError: if another run is at work there, or it cannot be written.
  """
  lock = None
  try:
    if not storage.is_address(workdir) and jax.process_index() == 0:
      os.makedirs(workdir, exist_ok=True)
      lock = filelock.FileLock(os.path.join(workdir, _LOCK), timeout=0)
      lock.acquire()
    yield
  except filelock.Timeout as e:
    raise errors.UserError(
      f'Another run is at work in {workdir}. Wait for its end, stop it, or give'
      f' this one its own --workdir.'
    ) from e
  except OSError as e:
    raise errors.UserError(
      f'{e.filename or workdir}: {e.strerror or e}. Make room or choose another'
      f' --workdir. The newest whole checkpoint stays; the same command goes on.'
    ) from e
  finally:
    if lock is not None and lock.is_locked:
      lock.release()


def changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
  """Returns the settings that are not the same, with both values."""
  old, new = (
    flax.traverse_util.flatten_dict(dict(x), sep='.') for x in (before, now)
  )
  return [
    f'{name} was {old.get(name)!r}, is {new.get(name)!r}'
    for name in sorted(old.keys() | new.keys())
    if old.get(name) != new.get(name)
  ]


@contextlib.contextmanager
def naming_changes(workdir: str, config: Mapping[str, Any]) -> Iterator[None]:
  """Adds to an error which settings are not those that the run began with."""
  try:
    yield
  except errors.UserError as e:
    saved = files.read_json(storage.as_path(workdir) / 'config.json')
    rows = changed(saved, config) if saved else []
    if not rows:
      raise
    raise errors.UserError(
      f'{e}\nSettings that have changed: {"; ".join(rows[:10])}.'
    ) from e


def check_data(
  workdir: str, splits: dict[str, sources.Source], *, resumed: bool
) -> Fingerprints:
  """Compares the data of a run that is resumed with that it began with.

  Args:
    workdir: of the run.
    splits: what it reads, by the name of the setting.
    resumed: whether there is anything to compare with.

  Returns:
    What to remember of the data, on process 0.

  Raises:
    errors.UserError: if the data is not what it was.
  """
  if jax.process_index():
    return {}
  path = storage.as_path(workdir) / DATA
  now = {name: fingerprint(source) for name, source in splits.items()}
  before = files.read_json(path) if resumed else {}
  for name in before.keys() & now.keys():
    if any(before[name].get(key) != now[name][key] for key in _COMPARED):
      raise errors.UserError(
        f'The data of {name} has changed since this run began:'
        f' {before[name]["images"]} images then, {now[name]["images"]} now'
        f' ({before[name]["sha256"][:8]}, {now[name]["sha256"][:8]}). Give'
        f' another --workdir, or put back what was there; to go on with what is,'
        f' delete {path}.'
      )
  return now


def remember_data(workdir: str, now: Fingerprints) -> None:
  """Writes what `check_data` returned, on process 0."""
  if jax.process_index() == 0:
    files.write_json(now, storage.as_path(workdir) / DATA)


def fingerprint(source: sources.Source) -> dict[str, int | str]:
  """Returns the number of images, a hash, and how many files are not read.

  The hash is of the classes and of some images.

  The first and the last image and others between them are read; in a folder,
  whose order depends on all names, one more file or another name moves them.
  Where the data set is does not matter.
  """
  sha = hashlib.sha256(repr((len(source), list(source.class_names))).encode())
  places = np.linspace(0, len(source) - 1, min(_SAMPLES, len(source)))
  for place in np.unique(places.astype(int)).tolist():
    try:
      example = source[place]
    except OSError as e:  # Training will tell, or skip it.
      logging.warning('%s', e)
      continue
    image = example['image']
    sha.update(image.tobytes() if isinstance(image, np.ndarray) else image)
    sha.update(repr(example.get('label')).encode())
  unread = image_files.count_text(getattr(source, 'unread', {}))
  return {
    'images': len(source),
    'sha256': sha.hexdigest(),
    'unread': unread,
  }
