"""Checks devices, versions, room, weights and data, and trains for two steps.

vit-jax doctor [--model=NAME_OR_PATH] [--dataset=NAME_OR_PATH]

Prints a line for each check and, where it fails, what to do; exits with 1 if one
fails.
"""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import functools
import importlib.metadata
import os
import pathlib
import platform
import shutil
import sys
import tempfile

from absl import flags
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


@dataclasses.dataclass(frozen=True)
class Finding:
  """What a check found.

  Attributes:
    what: was looked at.
    status: `OK`, `WARNING` or `FAILED`.
    text: what is there.
    advice: what to do about it.
  """

  what: str
  status: str
  text: str
  advice: str = ''


def check_versions() -> Iterator[Finding]:
  """Compares Python and packages with the versions that are tested."""
  python = platform.python_version()
  try:
    requires = importlib.metadata.metadata('vit_jax')['Requires-Python']
  except importlib.metadata.PackageNotFoundError:
    text = f'vit_jax is in {pathlib.Path(vit_jax.__file__).parent}, but not installed'
    yield Finding('packages', WARNING, text, 'pip install --editable .')
    return
  yield Finding('Python', OK, f'{python}, tested: {requires}')
  wrong = []
  for name, tested in environment.tested().items():
    version = environment.version(name)
    if version is None or not tested.specifier.contains(
      version, prereleases=True
    ):
      wrong.append(
        f'{name} {version or "missing"} (tested: {tested.specifier})'
      )
  if wrong:
    yield Finding(
      'packages', WARNING, ', '.join(wrong), 'pip install --editable .'
    )
  else:
    count = len(environment.tested())
    jax_version = environment.version('jax')
    yield Finding('packages', OK, f'all {count} as tested, jax {jax_version}')


def check_devices() -> Iterator[Finding]:
  """Looks for accelerators, and for such as JAX does not see."""
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
  """Looks at memory of the host and of a device."""
  total = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
  text = f'{total / _GIB:.1f} GiB on this host'
  stats = jax.local_devices()[0].memory_stats() or {}
  if limit := stats.get('bytes_limit'):
    text += f', {limit / _GIB:.1f} GiB of each device to use'
  yield Finding(
    'memory',
    OK if total >= _MIN_MEMORY else WARNING,
    text,
    'Set config.batch lower, or config.accum_steps higher; vit-jax'
    ' plan tells what fits.',
  )


def check_disk() -> Iterator[Finding]:
  """Checks the room for weights and checkpoints, and for compiled programs."""
  yield _room(
    'this folder', pathlib.Path.cwd(), 'Make room, or work elsewhere.'
  )
  cache = compilation_cache.folder()
  if not jax.config.jax_enable_compilation_cache or storage.is_address(cache):
    return
  advice = (
    'Make room, or set JAX_COMPILATION_CACHE_DIR to another folder. Without the'
    ' cache each command compiles its programs again.'
  )
  yield _room('the cache', cache, advice)


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
  """Reads weights; without a name, looks which need no download."""
  if name:
    weights = checkpoint.read(name)
    yield Finding('weights', OK, f'{name}: {weights_lib.describe(weights)}')
    return
  found = released.names_here()
  yield Finding(
    'weights',
    OK if found else WARNING,
    f'here without a download: {", ".join(found) or "none"}',
    'vit-jax models prints names that are downloaded.',
  )


def check_dataset(name: str | None) -> Iterator[Finding]:
  """Opens a data set as training does, and decodes some images of each split."""
  name = name or 'digits'
  data = batching.of_config(resolved.with_defaults(_tiny_config(name)))
  counts = []
  for split, decoded in (('train', data.train), ('test', data.test)):
    count, total = min(_MOST_DECODED, len(decoded)), len(decoded)
    for place in np.linspace(0, total - 1, count).astype(int).tolist():
      decoded[place]
    counts.append(f'{total:,} images in {split} ({count:,} decoded)')
  text = ', '.join([f'{len(data.class_names)} classes', *counts])
  unread = [
    f'{split}: {image_files.count_text(x)}'
    for split, decoded in (('train', data.train), ('test', data.test))
    if (x := getattr(decoded.source, 'unread', {}))
  ]
  if not unread:
    yield Finding('dataset', OK, f'{name}: {text}')
    return
  yield Finding(
    'dataset',
    WARNING,
    f'{name}: {text}; files that are not read, {"; ".join(unread)}',
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
  config.pp.test = 'test[:16]'
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
  yield Finding(
    'training',
    OK if len(losses) == 2 and finite else FAILED,
    f'two steps, losses {", ".join(f"{loss:.3f}" for loss in losses)}',
    'Report it, with all that is printed here.',
  )


def examine(checks: Sequence[Callable[[], Iterator[Finding]]]) -> int:
  """Prints what the checks find; returns how many failed."""
  failed = 0
  for check in checks:
    try:
      findings = list(check())
    except errors.UserError as e:  # What it says is what to do.
      findings = [Finding(_name(check), FAILED, str(e))]
    except Exception as e:  # Whatever it is, the other checks go on.
      text = f'{type(e).__name__}: {errors.first_line(e)}'
      advice = 'Report it, with all that is printed here.'
      findings = [Finding(_name(check), FAILED, text, advice)]
    for finding in findings:
      print(f'{finding.status:8}{finding.what:12}{finding.text}', flush=True)
      if finding.status != OK and finding.advice:
        print(f'{"":20}Try: {finding.advice}')
      failed += finding.status == FAILED
  return failed


def _name(check: Callable[..., object]) -> str:
  function = getattr(check, 'func', check)
  return function.__name__.removeprefix('check_')


def define_flags() -> None:
  """Defines the flags of `vit-jax doctor`."""
  flags.DEFINE_string('model', None, 'Weights to look for.')
  flags.DEFINE_string('dataset', None, 'Images to look for.')


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise errors.UserError(f'{argv[1]}: only flags are taken.')
  options = flags.FLAGS
  failed = examine(
    [
      check_versions,
      check_devices,
      check_memory,
      check_disk,
      functools.partial(check_weights, options.model),
      functools.partial(check_dataset, options.dataset),
      check_training,
    ]
  )
  if failed:
    sys.exit(1)
  print('Ready.')
