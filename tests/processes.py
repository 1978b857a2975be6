"""Commands in processes of their own, and in this one."""

from collections.abc import Callable, Iterator, Sequence
import concurrent.futures
import contextlib
import gc
import io
import logging as python_logging
import os
import socket
import subprocess
import sys
import time

from absl import logging
from golden_files import REPOSITORY
import pytest

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
      'XLA_FLAGS': f'{os.environ["XLA_FLAGS"]} --xla_force_host_platform_device_count={devices}',
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
