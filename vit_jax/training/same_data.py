"""The data of a run: facts about both splits, compared when it is resumed."""

import hashlib
from typing import Any

from absl import logging
import jax
import numpy as np

from vit_jax.data import class_counts
from vit_jax.data import copies
from vit_jax.data import datasets
from vit_jax.data import image_files
from vit_jax.data import numbers
from vit_jax.data import sources
from vit_jax.data.rows import row_weights
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import workdir as workdir_lib

# What `fingerprint` returns, by the setting that names the split.
Fingerprints = dict[str, dict[str, Any]]

_COMPARED = ('images', 'sha256')
_SAMPLES = 64  # Images whose bytes are hashed.
_MOST_LOOKED_AT = 20_000  # Images that are decoded to find copies.


def check(
  workdir: workdir_lib.Workdir,
  splits: datasets.Splits,
  *,
  resumed: bool,
) -> Fingerprints:
  """Compares the data of a resumed run with the data it began with.

  A new run counts the copies of training images among the test images, and warns of
  them: it decodes all images if there are at most 20,000.

  Returns:
    The fingerprints for `remember`, on process 0.

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
  test = 'config.pp.test'
  if 'copies' in before.get(test, {}):
    now[test]['copies'] = before[test]['copies']
  elif not resumed and getattr(splits.train.source, 'split_by', None):
    now[test]['copies'] = _count_copies(splits)
  return now


def check_outputs(
  workdir: workdir_lib.Workdir, splits: datasets.Splits
) -> None:
  """Checks that outputs mean what they meant when the run began.

  Raises:
    errors.UserError: if the classes or their order, or the mean and the standard
      deviation of the numbers in training, are others.
  """
  hint = f'vit-jax evaluate --model={workdir.folder} suits other data.'
  source = splits.train.source
  now = list(getattr(source, 'class_names', []))
  before = files.read_lines(workdir.labels) if workdir.labels.exists() else now
  if before != now:
    raise errors.UserError(
      f'config.dataset has the classes or numbers {errors.some(now)}, the run was'
      f' trained on {errors.some(before)}. Their order counts too. {hint}'
    )
  train = files.read_json(workdir.dataset).get('config.pp.train', {})
  for name, facts in (numbers.of_source(source) or {}).items():
    known = train.get('numbers', {}).get(name, facts)
    if any(known[key] != facts[key] for key in ('mean', 'std')):
      raise errors.UserError(
        f'The {name} of config.pp.train has the mean {facts["mean"]:g} and the'
        f' standard deviation {facts["std"]:g}, in training {known["mean"]:g} and'
        f' {known["std"]:g}, which give outputs their meaning. Set'
        f' config.pp.train as the run had it. {hint}'
      )


def remember(workdir: workdir_lib.Workdir, now: Fingerprints) -> None:
  """Writes the fingerprints that `check` returned, on process 0."""
  if jax.process_index() == 0:
    files.write_json(now, workdir.dataset)


def fingerprint(source: sources.Source) -> dict[str, Any]:
  """Returns the number of images, of each class too, a hash, and the unread files.

  The hash covers the class names, all weights, and evenly spaced images with their
  labels or captions. A new file or name in a folder moves them, since their order
  depends on all names. The location of the data set does not matter.
  """
  sha = hashlib.sha256(repr((len(source), list(source.class_names))).encode())
  places = np.linspace(0, len(source) - 1, min(_SAMPLES, len(source)))
  for place in np.unique(places.astype(int)).tolist():
    try:
      example = source[place]
    except OSError as e:  # Training raises or skips it.
      logging.warning('%s', e)
      continue
    image = example['image']
    sha.update(image.tobytes() if isinstance(image, np.ndarray) else image)
    sha.update(repr(np.asarray(example.get('label')).tolist()).encode())
    if 'captions' in example:
      sha.update(repr(example['captions']).encode())
  if (weights := row_weights.of_source(source)) is not None:
    sha.update(np.ascontiguousarray(weights).tobytes())
  unread = image_files.count_text(getattr(source, 'unread', {}))
  facts = {
    'images': len(source),
    'sha256': sha.hexdigest(),
    'unread': unread,
    'split_by': getattr(source, 'split_by', ''),
    'classes': class_counts.of_source(source),
    'numbers': numbers.of_source(source),
    'weights': row_weights.facts(source),
  }
  return {k: v for k, v in facts.items() if v is not None and v != ''}


def _count_copies(splits: datasets.Splits) -> int | None:
  """Counts test images that are copies of training images, and warns of them.

  `vit-jax data` checks data sets of any size.
  """
  train, test = splits.train.source, splits.test.source
  if len(train) + len(test) > _MOST_LOOKED_AT:
    logging.info(
      'More than %d images: they were not compared. vit-jax data finds copies of'
      ' training images among the test images.',
      _MOST_LOOKED_AT,
    )
    return None
  pairs = copies.between(copies.look(train), copies.look(test))
  if count := len(pairs):
    i, j = pairs[0].tolist()
    logging.warning(
      '%d of %d test images are copies of training images, such as %s of %s: the'
      ' model will look better than it is. vit-jax data --json lists them.',
      count,
      len(test),
      test[j]['name'],
      train[i]['name'],
    )
  return count
