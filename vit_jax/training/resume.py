"""Checks that a resumed run has the data and the settings it began with."""

from collections.abc import Iterator, Mapping
import contextlib
import hashlib
from typing import Any

from absl import logging
import flax.traverse_util
import jax
import numpy as np

from vit_jax.data import batching
from vit_jax.data import image_files
from vit_jax.data import sources
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import workdir as workdir_lib

# Number of images and hash of a split, by the setting that names it.
Fingerprints = dict[str, dict[str, int | str]]

_COMPARED = ('images', 'sha256')
_SAMPLES = 64  # Images whose bytes are hashed.


def changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
  """Returns the settings that differ, with both values."""
  old, new = (
    flax.traverse_util.flatten_dict(dict(x), sep='.') for x in (before, now)
  )
  return [
    f'{name} was {old.get(name)!r}, is {new.get(name)!r}'
    for name in sorted(old.keys() | new.keys())
    if old.get(name) != new.get(name)
  ]


@contextlib.contextmanager
def naming_changes(
  workdir: workdir_lib.Workdir, config: Mapping[str, Any]
) -> Iterator[None]:
  """Adds to an error the settings that changed since the run began."""
  try:
    yield
  except errors.UserError as e:
    saved = files.read_json(workdir.config)
    rows = changed(saved, config) if saved else []
    if not rows:
      raise
    raise errors.UserError(
      f'{e}\nSettings that have changed: {"; ".join(rows[:10])}.'
    ) from e


def check_data(
  workdir: workdir_lib.Workdir,
  splits: batching.Splits,
  *,
  resumed: bool,
) -> Fingerprints:
  """Compares the data of a resumed run with the data it began with.

  Args:
    workdir: the workdir of the run.
    splits: the data set.
    resumed: whether there is anything to compare with.

  Returns:
    The fingerprints to remember, on process 0.

  Raises:
    errors.UserError: if the data has changed.
  """
  if jax.process_index():
    return {}
  now = {
    'config.pp.train': fingerprint(splits.train.source),
    'config.pp.test': fingerprint(splits.test.source),
  }
  before = files.read_json(workdir.dataset) if resumed else {}
  for name in before.keys() & now.keys():
    if any(before[name].get(key) != now[name][key] for key in _COMPARED):
      raise errors.UserError(
        f'The data of {name} has changed since this run began:'
        f' {before[name]["images"]} images then, {now[name]["images"]} now'
        f' ({before[name]["sha256"]:.8}, {now[name]["sha256"]:.8}). Choose'
        f' another workdir, or put the old data back; to resume with the new'
        f' data, delete {workdir.dataset}.'
      )
  return now


def remember_data(workdir: workdir_lib.Workdir, now: Fingerprints) -> None:
  """Writes the fingerprints that `check_data` returned, on process 0."""
  if jax.process_index() == 0:
    files.write_json(now, workdir.dataset)


def fingerprint(source: sources.Source) -> dict[str, int | str]:
  """Returns the number of images, a hash, and the files that are not read.

  The hash covers the class names, the first, the last and some images between.
  In a folder, whose order depends on all names, a new file or name moves them.
  The location of the data set does not matter.
  """
  sha = hashlib.sha256(repr((len(source), list(source.class_names))).encode())
  places = np.linspace(0, len(source) - 1, min(_SAMPLES, len(source)))
  for place in np.unique(places.astype(int)).tolist():
    try:
      example = source[place]
    except OSError as e:  # Training raises, or skips it.
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
