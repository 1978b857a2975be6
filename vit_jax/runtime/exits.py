"""How a process ends: its last line, and Ctrl-C.

Python turns Ctrl-C into an exception of the main thread. That comes late, as
XLA compiles for minutes without Python; it breaks imports, which then fail in
their own ways; and it may come while the main thread holds a lock of a loader,
whose end is then waited for without end. So commands have a thread that waits
for Ctrl-C and ends the process. Imports nothing but the standard library, to be
there before the other imports.
"""

from collections.abc import Callable
import contextlib
import os
import pathlib
import re
import signal
import sys
import threading
from typing import Any, NoReturn

INTERRUPTED = 130  # As shells have it: 128 and the number of the signal.
_LINE = 'interrupted.'
_PROC = pathlib.Path('/proc')  # Of Linux alone.

_is_command = False
_ask: Callable[[], None] | None = None  # Called by the next Ctrl-C.


def program() -> str:
  """Returns the name of the command line, as messages start with it."""
  return sys.argv[0]


def with_flags(message: str) -> str:
  """Returns the message of an error with settings written as flags.

  Errors name settings as Python does, `config.pp.crop=224` or `on_bad_image=skip`:
  `--config.pp.crop=224` and `--on_bad_image=skip` are what a command takes.
  """
  # Not imported here: another thread may be importing it.
  flags = getattr(sys.modules.get('absl.flags'), 'FLAGS', ())

  def flag(match: re.Match[str]) -> str:
    name = match[0].split('.')[0]
    if name in flags:
      return f'--{match[0]}'
    if 'config' in flags and name in (flags.config or ()):
      return f'--config.{match[0]}'
    return match[0]

  return re.sub(r'(?<![^\s(])[a-z]\w*(\.[a-z]\w*)*(?==)', flag, message)


def write_last_line(line: str, *, kills_workers: bool = False) -> None:
  """Writes the last line of this process to stderr.

  Native threads, of gRPC for one, write whenever they like: what comes after
  this line goes nowhere.

  Args:
    line: the line, without the name of the program.
    kills_workers: whether to end the workers, which could write one too. Only
      where this process ends at once: waiting for a killed one may never end.
  """
  # A reader that has stopped to read must not stop the end.
  flush = threading.Thread(target=_flush, daemon=True)
  flush.start()
  flush.join(1)
  text = f'{program()}: {with_flags(line)}\n'
  with contextlib.suppress(OSError):  # Where stderr is closed.
    stderr = os.dup(2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    if kills_workers:
      _kill_workers()
    os.write(stderr, text.encode(errors='backslashreplace'))


def _kill_workers() -> None:
  """Ends processes that this one started; later ones inherit its closed stderr."""
  import multiprocessing  # Later than Ctrl-C, which may come soon.

  for child in multiprocessing.active_children():
    child.kill()
  # One that is being started is not among them, and would say that it is cut off.
  own = _read(
    _PROC / 'self' / 'cmdline'
  )  # That of a child in its first moment.
  for children in (_PROC / 'self' / 'task').glob('*/children'):
    for pid in _read(children).split():
      command = _read(_PROC / pid / 'cmdline')
      if command == own or 'spawn_main' in command:
        with contextlib.suppress(OSError):
          os.kill(int(pid), signal.SIGKILL)


def _read(path: pathlib.Path) -> str:
  """Returns what a file says, nothing of a thread or process that has ended."""
  try:
    return path.read_text(errors='replace')
  except OSError:
    return ''


def _flush() -> None:
  for stream in (sys.stdout, sys.stderr):
    with contextlib.suppress(OSError, ValueError):  # A closed pipe.
      stream.flush()


def on_interrupt() -> None:
  """Makes Ctrl-C end this process at once, with one line, from now on.

  Nothing happens where Ctrl-C is ignored, as shells have it for what they start
  in the background.
  """
  global _is_command
  if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
    return
  _is_command = True
  reader, writer = os.pipe()
  os.set_blocking(writer, False)
  threading.Thread(target=_watch, args=(reader,), daemon=True).start()
  signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
  signal.signal(signal.SIGINT, lambda *unused: None)


def _watch(reader: int) -> None:
  while True:
    for number in os.read(reader, 1):
      if number == signal.SIGINT:
        _interrupted()


def _interrupted(*unused: Any) -> None:
  global _ask
  ask, _ask = _ask, None
  if ask:
    ask()
  elif _is_command:
    leave(_LINE, INTERRUPTED)
  else:
    raise KeyboardInterrupt


def leave(line: str, code: int) -> NoReturn:
  """Ends this process with a last line; waits for no thread and no process."""
  if os.isatty(2):
    os.write(2, b'\n')  # After ^C or a progress bar.
  write_last_line(line, kills_workers=True)
  os._exit(code)


def leave_interrupted() -> NoReturn:
  """Ends a process whose main thread met KeyboardInterrupt."""
  leave(_LINE, INTERRUPTED)


def ask_first(ask: Callable[[], None] | None) -> None:
  """Makes the next Ctrl-C call `ask`, once; None undoes it.

  The call comes in another thread, unless this process is no command of ours: a
  notebook, where the one after it raises KeyboardInterrupt as ever.
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
