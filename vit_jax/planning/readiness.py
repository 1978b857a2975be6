"""Checks of a machine, weights and data before a run."""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import functools
import importlib.metadata
import os
import pathlib
import platform
import shutil
import tempfile

from absl import logging
import jax
import ml_collections
import numpy as np

import vit_jax
from vit_jax import checkpoint
from vit_jax import train
from vit_jax.configs import common
from vit_jax.configs import models
from vit_jax.configs import resolved
from vit_jax.data import batching
from vit_jax.data import datasets
from vit_jax.data import image_files
from vit_jax.reporting import curves
from vit_jax.runtime import compilation_cache
from vit_jax.runtime import environment
from vit_jax.runtime import errors
from vit_jax.runtime import storage
from vit_jax.runtime import workdir as workdir_lib
from vit_jax.weights import record as weights_lib
from vit_jax.weights import released

OK, WARNING, FAILED = 'ok', 'warning', 'FAILED'

_GIB = 2**30
_MOST_DECODED = 2000  # Images of each split.
_MIN_MEMORY, _MIN_DISK = 8 * _GIB, 5 * _GIB
_PLATFORMS = (
  "Unset JAX_PLATFORMS, or install 'vit_jax[cuda]' or 'vit_jax[tpu]' for it."
)
_REPORT = 'Report it, with all that is printed here.'


@dataclasses.dataclass(frozen=True)
class Finding:
  """The result of a check: its subject, a status, the facts and what to do."""

  what: str
  status: str
  text: str
  advice: str = ''


Check = Callable[[], Iterator[Finding]]


def checks(model: str | None, dataset: str | None) -> Sequence[Check]:
  """Returns all checks; `model` and `dataset` name weights and images to read."""
  return (
    check_versions,
    check_devices,
    check_memory,
    check_disk,
    functools.partial(check_weights, model),
    functools.partial(check_dataset, dataset),
    check_training,
  )


def examine(checks: Sequence[Check]) -> Iterator[Finding]:
  """Yields the findings of checks; one that raises does not stop the others."""
  for check in checks:
    name = getattr(check, 'func', check).__name__.removeprefix('check_')
    try:
      yield from check()
    except errors.UserError as e:  # It says what to do.
      yield Finding(name, FAILED, str(e))
    except Exception as e:
      text = f'{type(e).__name__}: {errors.first_line(e)}'
      is_missing = 'Unable to initialize backend' in text
      yield Finding(name, FAILED, text, _PLATFORMS if is_missing else _REPORT)


def check_versions() -> Iterator[Finding]:
  """Compares Python and packages with the tested versions."""
  python = platform.python_version()
  try:
    requires = importlib.metadata.metadata('vit_jax')['Requires-Python']
  except importlib.metadata.PackageNotFoundError:
    folder = pathlib.Path(vit_jax.__file__).parents[1]
    text = f'vit_jax is in {folder}, but not installed'
    advice = f'pip install --editable {folder}'
    yield Finding('packages', WARNING, text, advice)
    return
  yield Finding('Python', OK, f'{python}, tested: {requires}')
  tested = environment.tested()
  versions = {name: environment.version(name) for name in tested}
  wrong = [
    name
    for name, v in versions.items()
    if v is None or not tested[name].specifier.contains(v, prereleases=True)
  ]
  if not wrong:
    text = f'all {len(tested)} as tested, jax {versions["jax"]}'
    yield Finding('packages', OK, text)
    return
  text = ', '.join(
    f'{name} {versions[name] or "missing"} (tested: {tested[name].specifier})'
    for name in wrong
  )
  advice = ' '.join(f"'{tested[name]}'" for name in wrong)
  yield Finding('packages', WARNING, text, f'pip install {advice}')


def check_devices() -> Iterator[Finding]:
  """Looks for accelerators, also for those that JAX does not see."""
  devices = jax.devices()
  text = f'{len(devices)} x {devices[0].device_kind} ({devices[0].platform})'
  unseen = [
    (name, extra)
    for path, name, extra in (
      ('/dev/nvidiactl', 'NVIDIA GPU', 'cuda'),
      ('/dev/accel0', 'TPU', 'tpu'),
      ('/dev/vfio/0', 'TPU', 'tpu'),
    )
    if os.path.exists(path)
  ]
  if devices[0].platform != 'cpu' or not unseen:
    yield Finding('devices', OK, text)
    return
  name, extra = unseen[0]
  yield Finding(
    'devices',
    WARNING,
    f'{text}; there is a {name} that JAX does not use',
    f"pip install 'vit_jax[{extra}]', and look at JAX_PLATFORMS.",
  )


def check_memory() -> Iterator[Finding]:
  """Measures the memory of the host and of a device."""
  total = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
  text = f'{total / _GIB:.1f} GiB on this host'
  stats = jax.local_devices()[0].memory_stats() or {}
  if limit := stats.get('bytes_limit'):
    text += f', {limit / _GIB:.1f} GiB of each device to use'
  status = OK if total >= _MIN_MEMORY else WARNING
  advice = (
    'Set config.batch lower, or config.accum_steps higher; vit-jax plan shows'
    ' what fits.'
  )
  yield Finding('memory', status, text, advice)


def check_disk() -> Iterator[Finding]:
  """Measures the room for weights and checkpoints, and for compiled programs."""
  advice = 'Make room, or work elsewhere.'
  yield _room('this folder', pathlib.Path.cwd(), advice)
  cache = compilation_cache.folder()
  enabled = jax.config.values['jax_enable_compilation_cache']
  if not enabled or storage.is_address(cache):
    return
  advice = (
    'Make room, or set JAX_COMPILATION_CACHE_DIR to another folder. Without the'
    ' cache each command compiles its programs again.'
  )
  yield _room('the cache', storage.local_path(cache), advice)


def _room(what: str, path: pathlib.Path, advice: str) -> Finding:
  try:
    path.mkdir(parents=True, exist_ok=True)
    free, writable = shutil.disk_usage(path).free, os.access(path, os.W_OK)
  except OSError as e:
    text = f'{path} cannot be made: {e.strerror or e}'
    return Finding(what, WARNING, text, advice)
  status = OK if free >= _MIN_DISK and writable else WARNING
  text = f'{free / _GIB:.1f} GiB free{"" if writable else ", not writable"}'
  return Finding(what, status, f'{path}: {text}', advice)


def check_weights(name: str | None) -> Iterator[Finding]:
  """Reads weights; without a name, lists those that need no download."""
  if name:
    weights = checkpoint.read(name)
    yield Finding('weights', OK, f'{name}: {weights_lib.describe(weights)}')
    return
  found = released.names_here()
  text = f'here without a download: {", ".join(found) or "none"}'
  advice = 'vit-jax models prints names that are downloaded.'
  yield Finding('weights', OK if found else WARNING, text, advice)


def check_dataset(name: str | None) -> Iterator[Finding]:
  """Opens a data set as training does, and decodes some images of each split."""
  name = name or 'digits'
  config = datasets.with_data(resolved.with_defaults(_tiny_config(name)))
  data = batching.of_config(config)
  text, unread = f'{name}: {len(data.class_names)} classes', []
  for split, decoded in (('train', data.train), ('test', data.test)):
    count, total = min(_MOST_DECODED, len(decoded)), len(decoded)
    for place in np.linspace(0, total - 1, count).astype(int).tolist():
      decoded[place]
    text += f', {total:,} images in {split} ({count:,} decoded)'
    if others := getattr(decoded.source, 'unread', {}):
      unread.append(f'{split}: {image_files.count_text(others)}')
  if not unread:
    yield Finding('dataset', OK, text)
    return
  yield Finding(
    'dataset',
    WARNING,
    f'{text}; files that are not read, {"; ".join(unread)}',
    f'Convert those that are images to {", ".join(image_files.SUFFIXES)}.',
  )


def _tiny_config(dataset: str) -> ml_collections.ConfigDict:
  config = common.with_dataset(common.get_config(), dataset)
  config.model = models.vit_config(
    'tiny',
    hidden_size=16,
    num_layers=1,
    mlp_dim=32,
    num_heads=2,
    patch_size=(4, 4),
  )
  config.pp.crop = 8
  return config


def check_training() -> Iterator[Finding]:
  """Trains a tiny model for two steps, saves it and reads it again."""
  config = _tiny_config('digits')
  config.batch = config.batch_eval = 8 * jax.device_count()
  config.accum_steps = config.warmup_steps = config.progress_every = 1
  config.total_steps = 2
  config.pp.test = 'test[:64]'  # Images of every class.
  config.report = False
  with tempfile.TemporaryDirectory() as workdir:
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.WARNING)
    try:
      train.train_and_evaluate(config, workdir)
    finally:
      logging.set_verbosity(verbosity)
    run = workdir_lib.at(workdir)
    rows = curves.read(run)
    losses = [row['train_loss'] for row in rows if 'train_loss' in row]
    weights = checkpoint.read(run.artifact)
  finite = all(np.isfinite(x).all() for x in jax.tree.leaves(weights.params))
  status = OK if len(losses) == 2 and finite else FAILED
  text = f'two steps, losses {", ".join(f"{loss:.3f}" for loss in losses)}'
  yield Finding('training', status, text, _REPORT)
