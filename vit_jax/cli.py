"""What the command lines share: a mistake gives one clear line, no trace."""

from collections.abc import Callable, Sequence
import logging as python_logging
import pathlib
import re
import sys
import traceback
from typing import Any

from absl import app
from absl import flags
from absl import logging

from vit_jax import compilation_cache
from vit_jax import errors

_INTERRUPTED = 130  # As shells have it: 128 and the number of the signal.


def run(main: Callable[[Sequence[str]], None]) -> None:
  """Runs `main` with the arguments that are no flags.

  Exits with 1 and the message alone on `errors.UserError`; `--v=1` shows where
  it came from.
  """

  def guarded(argv: Sequence[str]) -> None:
    try:
      main(argv)
    except errors.UserError as e:
      logging.debug('Details:', exc_info=True)
      sys.exit(f'{program()}: {e}')
    except KeyboardInterrupt:
      print(f'{program()}: interrupted.', file=sys.stderr)
      sys.exit(_INTERRUPTED)

  compilation_cache.enable()
  sys.excepthook = sys.unraisablehook = _report
  # Python's tracker frees the memory that workers share, and would warn of that
  # where they were stopped.
  sys.warnoptions.append('ignore::UserWarning:multiprocessing.resource_tracker')
  logging.set_verbosity(logging.INFO)
  logging.get_absl_handler().python_handler.addFilter(_is_ours)
  app.run(guarded, flags_parser=_parse_flags)


def define_image_size() -> None:
  """Defines the flag that `image_size` reads."""
  flags.DEFINE_list(
    'image_size',
    [],
    'height,width in pixels; by default that of the weights. Position embeddings'
    ' are resized.',
  )


def image_size() -> tuple[int, int] | None:
  """Returns (height, width) of the flag; None if it is not given.

  Raises:
    errors.UserError: if it is something else.
  """
  size = flags.FLAGS.image_size
  if not size:
    return None
  if len(size) != 2 or not all(n.isdecimal() and int(n) for n in size):
    raise errors.UserError(
      f'--image_size={",".join(size)} must be height,width in pixels.'
    )
  return int(size[0]), int(size[1])


def program() -> str:
  """Returns the name of the command line, as messages start with it."""
  return f'vit_jax.{pathlib.Path(sys.argv[0]).stem}'


# What ml_collections and run files raise at names and values they refuse.
REFUSALS = (
  AttributeError,
  KeyError,
  OSError,
  RecursionError,
  TypeError,
  ValueError,
)


def _parse_flags(argv: Sequence[str]) -> list[str]:
  try:
    return flags.FLAGS(argv)
  except REFUSALS as e:
    reason = str(e.args[0] if e.args else e).strip().replace('\n', ' ')
    last = traceback.extract_tb(e.__traceback__)[-1]
    if 'site-packages' not in last.filename:  # Of a run file, say where.
      reason += f' ({last.filename}:{last.lineno})'
    sys.exit(f'{program()}: {reason}')
  except flags.Error as e:
    sys.exit(f'{program()}: {e}')


def _report(*error: Any) -> None:
  """Reports an error that nobody waits for, but for those of cut checkpoints.

  Their writers end one after the other when one has failed, and each would say
  that it cannot go on.
  """
  kind, value, trace = error if len(error) == 3 else error[0][:3]
  if 'Event loop is closed' not in str(value):
    traceback.print_exception(kind, value, trace)


def _is_ours(record: python_logging.LogRecord) -> bool:
  """Keeps the chatter of libraries out of the log, but not their warnings.

  What goes wrong while a checkpoint is written is raised besides.
  """
  if record.levelno == python_logging.ERROR and re.search(
    r'/(asyncio|orbax)/', record.pathname
  ):
    return False
  folder = str(pathlib.Path(__file__).parent)
  return record.levelno > python_logging.INFO or record.pathname.startswith(
    folder
  )
