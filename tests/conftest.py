"""Checks shapes in signatures while tests run; fixtures that many tests share."""

from collections.abc import Iterator
import ctypes
import gc
import itertools
import os
import signal
import sys
import tempfile

from absl import flags
from absl import logging
import grain  # noqa: F401  Its flags must be there before `call_command` forgets new ones.
import jax
import jaxtyping
import pytest

# Compiling takes most of the time of the tests, and their programs are too small
# to gain from being optimised.
_XLA_FLAGS = '--xla_backend_optimization_level=0'
if jax.__version_info__ < (0, 11):  # Later, XLA does not know this flag.
  _XLA_FLAGS += ' --xla_cpu_use_fusion_emitters=false'
os.environ['XLA_FLAGS'] = _XLA_FLAGS

# What is faster here would decide about rounding.
os.environ['VIT_JAX_ONEDNN'] = '0'

# Who starts tests in the background may have Ctrl-C ignored, as would what they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Tracing makes many objects, few of them cycles: Python would look for those often.
gc.set_threshold(50_000, 20, 20)

# Annotations such as Float[Array, 'B L D'] become checks of every call, in modules
# that are imported from here on.
assert not any(name.startswith('vit_jax.') for name in sys.modules)
jaxtyping.install_import_hook('vit_jax', 'type_checks.check')

# Grain's worker processes ask for absl flags, which tests do not parse.
flags.FLAGS.mark_as_parsed()

# As commands have it, so that what is logged does not depend on earlier tests.
logging.set_verbosity(logging.INFO)

# Where processes keep what they compiled, those of all workers: not in the home of
# who runs the tests.
if 'PYTEST_XDIST_WORKER' not in os.environ:
  _CACHE = tempfile.TemporaryDirectory(prefix='vit_jax_tests_')
  os.environ['XDG_CACHE_HOME'] = _CACHE.name

# Tests compile the same small programs again and again. Commands that tests start
# have `compilation_cache`, elsewhere in that folder.
jax.config.update(
  'jax_compilation_cache_dir', f'{os.environ["XDG_CACHE_HOME"]}/tests'
)
jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.02)
jax.config.update('jax_persistent_cache_min_entry_size_bytes', -1)


def pytest_configure() -> None:
  """Lets no command that runs in this process take Ctrl-C, not in imports either."""
  from vit_jax.runtime import exits

  exits.on_interrupt = lambda: None


_MODULES = itertools.count(1)


@pytest.fixture(autouse=True, scope='module')
def _forget_programs() -> Iterator[None]:
  """Frees what 24 modules compiled; each worker would grow by gigabytes.

  Not more often: the next modules trace and load the same small programs again.
  """
  yield
  if next(_MODULES) % 24 == 0:
    jax.clear_caches()
    # glibc keeps what is freed, half of all that a worker holds.
    if trim := getattr(ctypes.CDLL(None), 'malloc_trim', None):
      trim(0)


@pytest.fixture
def image_folder(tmp_path):
  """A folder of 3 classes, 12 training and 5 test images each, of all sizes."""
  from pictures import make_image_folder

  return make_image_folder(tmp_path / 'images')


@pytest.fixture(scope='session')
def captions(tmp_path_factory):
  """The folder of `make_caption_folder`, for reading."""
  from pictures import make_caption_folder

  return make_caption_folder(tmp_path_factory.mktemp('captions') / 'images')


@pytest.fixture(scope='session')
def lit_run(captions, tmp_path_factory):
  """A finished run of `tiny_lit`: (last state, workdir)."""
  from runs import tiny_lit

  from vit_jax import train

  workdir = tmp_path_factory.mktemp('lit_run')
  return train.train_and_evaluate(tiny_lit(captions), str(workdir)), workdir


@pytest.fixture(scope='session')
def teacher(tmp_path_factory):
  """The folder of the artifact of `teacher_weights`, for reading."""
  from taught import teacher_weights

  from vit_jax.weights import artifact

  folder = tmp_path_factory.mktemp('teacher') / 'artifact'
  artifact.save(folder, teacher_weights())
  return folder
