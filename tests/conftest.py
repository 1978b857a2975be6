"""Checks shapes in signatures while tests run, and helps with golden files."""

from collections.abc import Callable, Iterator, Sequence
import concurrent.futures
import contextlib
import gc
import gzip
import importlib.util
import io
import json
import logging as python_logging
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types

from absl import flags
from absl import logging
import grain  # noqa: F401  Its flags must be there before `call_command` forgets new ones.
import jax
import jaxtyping
import numpy as np
import pytest

from vit_jax import train

# Compiling takes most of the time of the tests, and their programs are too small
# to gain from being optimised.
_XLA_FLAGS = '--xla_backend_optimization_level=0'
if jax.__version_info__ < (0, 11):  # Later, XLA does not know this flag.
  _XLA_FLAGS += ' --xla_cpu_use_fusion_emitters=false'
os.environ['XLA_FLAGS'] = _XLA_FLAGS

# Who starts tests in the background may have Ctrl-C ignored, as would what they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Annotations such as Float[Array, 'B L D'] become checks of every call.
jaxtyping.install_import_hook('vit_jax', 'beartype.beartype')

# Grain's worker processes ask for absl flags, which tests do not parse.
flags.FLAGS.mark_as_parsed()

# As commands have it, so that what is logged does not depend on earlier tests.
logging.set_verbosity(logging.INFO)

REPOSITORY = pathlib.Path(__file__).parents[1]
GOLDEN = REPOSITORY / 'tests' / 'golden'


def golden_json(name: str) -> dict:
  """Reads `name` of tests/golden, gzipped or not."""
  path = GOLDEN / name
  if path.suffix == '.gz':
    return json.loads(gzip.decompress(path.read_bytes()))
  return json.loads(path.read_text())


def golden_arrays(name: str) -> dict[str, np.ndarray]:
  """Reads the arrays of `name` in tests/golden."""
  with np.load(GOLDEN / name) as arrays:
    return dict(arrays)


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


# No test waits so long, however busy the machine is; one that does hangs.
HANG_SECONDS = 1800


def start(*args: str, devices: int = 1, **environment: str) -> subprocess.Popen:
  """Starts `python -m args...` in the repository, with so many CPU devices.

  Whoever waits for it otherwise than by `communicate` must read its pipes, see
  `running`, or it may stop when they are full.
  """
  return start_command(
    sys.executable, '-m', *args, devices=devices, **environment
  )


def start_command(
  *args: str, devices: int = 1, **environment: str | None
) -> subprocess.Popen:
  """As `start`, of any command; a variable that is None is not set."""
  variables = (
    os.environ
    | {
      'GLIBC_TUNABLES': 'glibc.malloc.hugetlb=1',  # Or runs start twice.
      'JAX_PLATFORMS': 'cpu',
      'PYTHONPATH': str(REPOSITORY),
      'XLA_FLAGS': f'{_XLA_FLAGS} --xla_force_host_platform_device_count={devices}',
    }
    | environment
  )
  return subprocess.Popen(
    args,
    cwd=REPOSITORY,
    env={k: v for k, v in variables.items() if v is not None},
    start_new_session=True,  # So that signals may go to all of it, workers too.
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )


def run(*args: str, **options) -> subprocess.CompletedProcess:
  """Runs `python -m args...` to its end."""
  return _finish(start(*args, **options))


def _print_last_line(line: str) -> None:
  """Prints it without closing the stderr of this process."""
  from vit_jax.runtime import exits

  print(f'{exits.program()}: {exits.with_flags(line)}', file=sys.stderr)


def call_command(*words: str) -> subprocess.CompletedProcess:
  """Runs `vit-jax WORDS` in this process, as `run` does in another."""
  from absl import app
  from absl.testing import flagsaver

  from vit_jax.commands import dispatch
  from vit_jax.runtime import compilation_cache
  from vit_jax.runtime import exits

  out, err, code = io.StringIO(), io.StringIO(), 0
  handlers = [*python_logging.getLogger().handlers]
  with (
    pytest.MonkeyPatch.context() as patch,
    flagsaver.flagsaver(),  # Forgets the flags of the command, too.
    contextlib.redirect_stdout(out),
    contextlib.redirect_stderr(err),
  ):
    patch.setattr('sys.argv', ['vit-jax', *words])
    patch.setattr('__main__.__doc__', '')
    patch.setenv('GLIBC_TUNABLES', '')  # Or the process would start again.
    patch.setattr(compilation_cache, 'enable', lambda: None)
    patch.setattr(exits, 'write_last_line', _print_last_line)
    patch.setattr(app, '_define_help_flags_called', False)
    patch.setattr(app._register_and_parse_flags_with_usage, 'done', False)
    for name in ('excepthook', 'unraisablehook'):
      patch.setattr(sys, name, getattr(sys, name))
    verbosity = logging.get_verbosity()
    # What earlier tests left behind would print its errors into `err`.
    gc.freeze()
    try:
      dispatch.main()
    except SystemExit as e:
      code = e.code or 0
    finally:
      gc.unfreeze()
      python_logging.getLogger().handlers[:] = handlers
      logging.set_verbosity(verbosity)
  if isinstance(code, str):  # Python prints it and exits with 1.
    code = print(code, file=err) or 1
  return subprocess.CompletedProcess(
    words, code, out.getvalue(), err.getvalue()
  )


def _finish(process: subprocess.Popen) -> subprocess.CompletedProcess:
  out, err = process.communicate(timeout=HANG_SECONDS)
  return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@contextlib.contextmanager
def running(
  processes: Sequence[subprocess.Popen],
) -> Iterator[Callable[[], list[subprocess.CompletedProcess]]]:
  """Reads the pipes meanwhile; gives what waits for all; kills what is left."""
  with concurrent.futures.ThreadPoolExecutor(len(processes)) as pool:
    outputs = [pool.submit(_finish, process) for process in processes]
    try:
      yield lambda: [output.result() for output in outputs]
    finally:
      for process in processes:
        process.kill()


_PORTS = []  # Kept open, so that nobody else is given them.


def free_port() -> int:
  """Returns a port for gRPC, which nobody else gets while the tests run.

  gRPC shares ports with those that share them, too.
  """
  s = socket.socket()
  s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
  s.bind(('', 0))
  _PORTS.append(s)
  return s.getsockname()[1]


def arguments(folder, workdir, *overrides, run_file='tiny.py'):
  """Returns what `run` takes to train tests/run_files/tiny.py."""
  return (
    'vit_jax.main',
    f'--config=tests/run_files/{run_file}:{folder}',
    f'--workdir={workdir}',
    *overrides,
  )


def signalled(folder, workdir, number, step, *overrides, process=None):
  """As `arguments`, for a run that sends itself a signal after a step."""
  argument = f'{folder},{number.name},{step}'
  if process is not None:
    argument += f',{process}'
  return arguments(argument, workdir, *overrides, run_file='signalled.py')


def flat(workdir):
  """Returns the arrays of an artifact by their official names."""
  with np.load(workdir / 'artifact' / 'model.npz') as arrays:
    return dict(arrays)


def rows(workdir):
  """Returns the lines of metrics.jsonl."""
  lines = (workdir / 'metrics.jsonl').read_text().splitlines()
  return [json.loads(line) for line in lines]


def wait_for(condition, goes_on=lambda: True):
  """Waits for something true, while `goes_on()`; returns it."""
  end = time.monotonic() + HANG_SECONDS
  while not (result := condition()):
    if not goes_on() or time.monotonic() > end:
      pytest.fail('What is waited for did not come.')
    time.sleep(0.01)
  return result


def wait_for_step(process, workdir, step):
  """Waits until a run, which must not end by itself, has written `step`."""
  path = workdir / 'metrics.jsonl'
  wait_for(
    lambda: path.exists() and f'"step": {step},' in path.read_text(),
    lambda: process.poll() is None,
  )


@pytest.fixture(autouse=True, scope='session')
def _ctrl_c_is_of_pytest() -> Iterator[None]:
  """Lets no command that runs in this process take Ctrl-C."""
  from vit_jax.runtime import exits

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(exits, 'on_interrupt', lambda: None)
    yield


@pytest.fixture(autouse=True, scope='module')
def _forget_programs() -> Iterator[None]:
  """Frees what a module compiled; each worker would grow by gigabytes."""
  yield
  jax.clear_caches()


@pytest.fixture
def image_folder(tmp_path):
  """A folder of 3 classes, 12 training and 5 test images each, of all sizes."""
  return make_image_folder(tmp_path / 'images')


def make_image_folder(root: pathlib.Path) -> pathlib.Path:
  """Writes JPEG files whose colour tells their class."""
  import cv2

  rng = np.random.RandomState(0)
  for split, count in (('train', 12), ('test', 5)):
    for label, name in enumerate(('blue', 'green', 'red')):
      folder = root / split / name
      folder.mkdir(parents=True)
      for i in range(count):
        height, width = rng.randint(20, 60, 2)
        image = rng.randint(0, 80, (height, width, 3), np.uint8)
        image[..., label] += 120
        cv2.imwrite(str(folder / f'{i}.jpg'), image)
  return root


def picture(seed=0, height=40, width=56, channels=3):
  """A picture with smooth areas, noise and a narrow range of red."""
  rng = np.random.default_rng(seed)
  y, x = np.mgrid[:height, :width]
  ramp = np.stack([y * 4, x * 3, y + x], axis=-1)[..., :channels]
  image = np.clip(ramp + rng.integers(0, 60, ramp.shape), 0, 255)
  image[..., 0] = image[..., 0] // 3 + 70
  return image.astype(np.uint8)


COLOURS = ('blue', 'green', 'red')

# What the captions and prompts of the tests are made of.
VOCABULARY = '[PAD] [UNK] [CLS] a blue green red picture this is photo of the .'


def write_colour(path: pathlib.Path, name: str, rng: np.random.RandomState):
  """Writes an image that is mostly of one colour."""
  import cv2

  height, width = rng.randint(20, 60, 2)
  image = rng.randint(0, 80, (height, width, 3), np.uint8)
  image[..., COLOURS.index(name)] += 120
  cv2.imwrite(str(path), image)


def make_caption_folder(root: pathlib.Path) -> pathlib.Path:
  """Writes coloured images and captions that tell the colour, two an image.

  Besides, `vocab.txt`, and `vit.npz` with random weights for tests/run_files/
  tiny_lit.py.
  """
  from vit_jax import checkpoint
  from vit_jax import models

  rng = np.random.RandomState(0)
  for split, count in (('train', 12), ('test', 5)):
    (root / split).mkdir(parents=True)
    lines = []
    for name in COLOURS:
      for i in range(count):
        write_colour(root / split / f'{name}{i}.png', name, rng)
        lines.append(f'{name}{i}.png\ta {name} picture\n')
        lines.append(f'{name}{i}.png\tthis is {name}\n')
    (root / split / 'captions.tsv').write_text(''.join(lines))
  (root / 'vocab.txt').write_text(VOCABULARY.replace(' ', '\n') + '\n')
  image = tiny_lit(root).model.image.to_dict()
  model = models.from_config(image, num_classes=5)
  checkpoint.save(models.init_params(model, (16, 16, 3)), root / 'vit.npz')
  return root


def run_file(path: str) -> types.ModuleType:
  """Returns a run file of the repository, as a module."""
  spec = importlib.util.spec_from_file_location('run_file', REPOSITORY / path)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


def tiny(folder: pathlib.Path):
  """Returns the config of tests/run_files/tiny.py for an image folder."""
  return run_file('tests/run_files/tiny.py').get_config(str(folder))


def tiny_lit(root: pathlib.Path):
  """Returns the config of tests/run_files/tiny_lit.py for `make_caption_folder`."""
  from vit_jax.configs import resolved

  config = run_file('tests/run_files/tiny_lit.py').get_config(str(root))
  config.vocabulary = str(root / 'vocab.txt')
  config.pretrained = str(root / 'vit.npz')
  return resolved.with_defaults(config)


@pytest.fixture(scope='session')
def captions(tmp_path_factory):
  """The folder of `make_caption_folder`, for reading."""
  return make_caption_folder(tmp_path_factory.mktemp('captions') / 'images')


@pytest.fixture(scope='session')
def lit_run(captions, tmp_path_factory):
  """A finished run of `tiny_lit`: (last state, workdir)."""
  workdir = tmp_path_factory.mktemp('lit_run')
  return train.train_and_evaluate(tiny_lit(captions), str(workdir)), workdir
