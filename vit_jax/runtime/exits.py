"""How a process ends: its last line, and Ctrl-C.

Python turns Ctrl-C into an exception of the main thread. That comes late, since
XLA compiles for minutes without Python; it breaks imports, which then fail in
their own ways; and it may come while the main thread holds a lock of a loader,
which then never ends. So in commands a thread waits for Ctrl-C and ends the
process. This module imports only the standard library, so that it comes first.
"""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import os
import pathlib
import re
import signal
import sys
import threading
import time
from typing import Any, NoReturn

# Exit codes of shells: 128 and the number of the signal.
INTERRUPTED = 130
_BROKEN_PIPE = 141
_PROC = pathlib.Path('/proc')  # Linux only.

_is_command = False
_ask: Callable[[], None] | None = None  # Called by the next Ctrl-C.
_watcher: threading.Thread | None = None  # Waits for Ctrl-C.
_abort_handler: Any = None  # Kept, as native code calls it.
_pipe = (-1, -1)  # To the watcher: numbers of signals, or `_STOP`.
_STOP = 0  # There is no such signal.


def program() -> str:
  """Returns the name of the command, which starts its messages."""
  return sys.argv[0]


def with_flags(message: str) -> str:
  """Returns the message of an error with its settings written as flags.

  Errors name settings as Python does, `config.pp.crop=224` or `on_bad_image=skip`;
  a command takes `--config.pp.crop=224` and `--on_bad_image=skip`.
  """
  # Not imported here: another thread may be importing it.
  flags: Any = getattr(sys.modules.get('absl.flags'), 'FLAGS', ())

  def flag(match: re.Match[str]) -> str:
    name = match[0].split('.')[0]
    if name in flags:
      return f'--{match[0]}'
    if 'config' in flags and name in (flags.config or ()):
      return f'--config.{match[0]}'
    return match[0]

  return re.sub(r'(?<![^\s(])[a-z]\w*(\.[a-z]\w*)*(?==)', flag, message)


@contextlib.contextmanager
def stdout_may_close() -> Iterator[None]:
  """Ends the process quietly where `| head` has read enough of its output."""
  try:
    try:
      yield
    finally:
      sys.stdout.flush()  # What is left would be written too late to be caught.
  except BrokenPipeError:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(_BROKEN_PIPE)


def write_last_line(line: str, *, kills_workers: bool = False) -> None:
  """Writes the last line of this process to stderr, after its name.

  Native threads, such as gRPC's, write at any time: later output is discarded.
  `kills_workers` also ends the workers, which could write lines too. Use it only
  if this process ends at once: waiting for a killed worker may never end.
  """
  # A reader that no longer reads must not block this.
  flush = threading.Thread(target=_flush, daemon=True)
  flush.start()
  flush.join(1)
  text = f'{program()}: {with_flags(line)}\n'
  with contextlib.suppress(OSError):  # Where stderr is closed.
    stderr = os.dup(2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    if kills_workers:
      _kill_workers()
    time.sleep(0.05)  # For writes that had begun.
    os.write(stderr, text.encode(errors='backslashreplace'))


def _kill_workers() -> None:
  """Ends child processes; later ones inherit the closed stderr."""
  import multiprocessing  # Not at the start: Ctrl-C may come before.

  for child in multiprocessing.active_children():
    child.kill()
  # These lack a child that is just starting, which would complain. At first it has
  # the command line of its parent.
  own = _read(_PROC / 'self' / 'cmdline')
  for children in (_PROC / 'self' / 'task').glob('*/children'):
    for pid in _read(children).split():
      command = _read(_PROC / pid / 'cmdline')
      if command == own or 'spawn_main' in command:
        with contextlib.suppress(OSError):
          os.kill(int(pid), signal.SIGKILL)


def _read(path: pathlib.Path) -> str:
  """Returns the text of a file; '' after its thread or process has ended."""
  try:
    return path.read_text(errors='replace')
  except OSError:
    return ''


def on_abort(leave: Callable[[], NoReturn]) -> None:
  """Makes native threads that abort call this instead; it must end the process.

  Libraries abort when they lose other processes: without a last line, and with an exit
  code of their own. Python's own handlers would wait for the main thread.
  """
  global _abort_handler
  import ctypes  # Not at the start: Ctrl-C may come before.

  _abort_handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda unused: leave())
  _set_abort_handler(lambda unused: _abort_handler)


def pause_aborts() -> None:
  """Makes native threads that abort sleep instead, until this process ends.

  Use it only if this process ends soon.
  """
  _set_abort_handler(lambda libc: libc.pause)


def _set_abort_handler(handler_of: Callable[[Any], Any]) -> None:
  """Sets what aborts call, a native function, given the C library."""
  import ctypes

  with contextlib.suppress(OSError, AttributeError, TypeError):  # Windows.
    libc = ctypes.CDLL(None)
    libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
    handler = ctypes.cast(handler_of(libc), ctypes.c_void_p)
    libc.signal(signal.SIGABRT, handler)


def _flush() -> None:
  for stream in (sys.stdout, sys.stderr):
    with contextlib.suppress(OSError, ValueError):  # A closed pipe.
      stream.flush()


def on_interrupt() -> None:
  """Makes Ctrl-C end this process at once, with one line, from now on.

  Does nothing if Ctrl-C is ignored, as in background jobs of shells.
  """
  global _is_command, _pipe, _watcher
  if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    _is_command = True
    _pipe = os.pipe()
    os.set_blocking(_pipe[1], False)
    _watcher = threading.Thread(target=_watch, daemon=True)
    _watcher.start()
    signal.set_wakeup_fd(_pipe[1], warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, lambda *unused: None)
  _block_interrupt(False)  # `restart` may have blocked it.


def _watch() -> None:
  reader, numbers = _pipe[0], b''
  while _STOP not in numbers:
    numbers = os.read(reader, 1)
    if signal.SIGINT in numbers:
      _interrupted()
  _block_interrupt(True)
  os.set_blocking(reader, False)
  with contextlib.suppress(BlockingIOError):
    if signal.SIGINT in os.read(reader, 100):
      _interrupted()


def restart(environment: Mapping[str, str]) -> NoReturn:
  """Starts this command again with other environment variables.

  Ctrl-C ends either this process or the next: from the moment that nothing here
  waits for it, it stays pending until the next calls `on_interrupt`.
  """
  _block_interrupt(True)
  if _watcher:
    os.write(_pipe[1], bytes([_STOP]))
    _watcher.join()  # It does not end if Ctrl-C came: it ends this process.
  os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def _block_interrupt(block: bool) -> None:
  """Blocks Ctrl-C for this thread or lets it through, where systems can."""
  if hasattr(signal, 'pthread_sigmask'):
    how = signal.SIG_BLOCK if block else signal.SIG_UNBLOCK
    signal.pthread_sigmask(how, {signal.SIGINT})


def _interrupted(*unused: Any) -> None:
  global _ask
  ask, _ask = _ask, None
  if ask:
    ask()
  elif _is_command:
    leave_interrupted()
  else:
    raise KeyboardInterrupt


def leave_interrupted() -> NoReturn:
  """Ends this process after Ctrl-C; waits for no thread and no process."""
  if os.isatty(2):
    os.write(2, b'\n')  # After ^C or a progress bar.
  write_last_line('interrupted.', kills_workers=True)
  os._exit(INTERRUPTED)


def ask_first(ask: Callable[[], None] | None) -> None:
  """Makes the next Ctrl-C call `ask`, once; None undoes it.

  Commands call it in another thread. Other processes, such as notebooks, call it
  in the main thread; there the next Ctrl-C raises KeyboardInterrupt as usual.
  """
  global _ask
  _ask = ask
  is_main = threading.current_thread() is threading.main_thread()
  if _is_command or not is_main:
    return
  current = signal.getsignal(signal.SIGINT)
  if ask and current is signal.default_int_handler:
    signal.signal(signal.SIGINT, _interrupted)
  elif not ask and current is _interrupted:
    signal.signal(signal.SIGINT, signal.default_int_handler)
