"""Runs a command; a mistake gives one clear line and no trace."""

from collections.abc import Callable, Iterator, Sequence
import io
import logging as python_logging
import os
import re
import sys
import traceback
from typing import Any

from absl import app
from absl import flags
from absl import logging
import jax
from ml_collections import config_flags

import vit_jax
from vit_jax.commands import none_flags
from vit_jax.commands import setting_flags
from vit_jax.commands import setting_values
from vit_jax.configs import run_files
from vit_jax.runtime import compilation_cache
from vit_jax.runtime import errors
from vit_jax.runtime import exits
from vit_jax.runtime import official
from vit_jax.runtime import storage


def run(main: Callable[[Sequence[str]], None]) -> None:
  """Runs `main` with the arguments that are not flags.

  Exits with 1 and the message alone on `errors.UserError`; `--v=1` adds the
  trace. `COMMAND --complete` prints its flags and their values, for shells.
  """
  app.define_help_flags()
  flags.DEFINE_bool('version', False, 'Print the version.')
  sys.argv = ['--help' if word == '-h' else word for word in sys.argv]
  _show_in_help()
  if sys.argv[1:] == ['--complete']:
    print('\n'.join(sorted({'--help', *_completions()})))
    return
  if '--version' in sys.argv:
    print(vit_jax.__version__)
    return
  # File names may contain any bytes and are printed as they are.
  if isinstance(sys.stdout, io.TextIOWrapper):
    sys.stdout.reconfigure(errors='surrogateescape')
  exits.on_interrupt()
  compilation_cache.enable()
  sys.excepthook = sys.unraisablehook = _report
  # Python's tracker frees shared memory of killed workers, with a needless warning.
  sys.warnoptions.append('ignore::UserWarning:multiprocessing.resource_tracker')
  logging.set_verbosity(logging.INFO)
  logging.get_absl_handler().python_handler.addFilter(_is_ours)
  app.run(lambda argv: _run_guarded(main, argv), flags_parser=_parse_flags)


def _run_guarded(
  main: Callable[[Sequence[str]], None], argv: Sequence[str]
) -> None:
  try:
    main(argv)
  except errors.UserError as e:
    logging.debug('Details:', exc_info=True)
    exits.write_last_line(setting_flags.named(str(e)))
    sys.exit(1)
  except KeyboardInterrupt:
    if not jax.distributed.is_initialized():
      exits.leave_interrupted()
    exits.write_last_line('interrupted.')
    sys.exit(exits.INTERRUPTED)  # Several processes end together.


def refuse_words(argv: Sequence[str]) -> None:
  """Raises `errors.UserError` at arguments of a command that takes only flags."""
  if len(argv) > 1:
    raise errors.UserError(
      f'{argv[1]!r} is not a flag: flags begin with --, settings with --config.'
    )


def _own_flags() -> list[flags.Flag]:
  """Returns the flags that our modules define."""
  return flags.FLAGS.get_key_flags_for_module(sys.argv[0])


def _completions() -> Iterator[str]:
  """Yields `--FLAG` or `--FLAG=`, and `--FLAG=VALUE` of flags with few values."""
  for flag in _own_flags():
    yield f'--{flag.name}' if flag.boolean else f'--{flag.name}='
    for value in getattr(flag.parser, 'enum_values', ()):
      yield f'--{flag.name}={value}'


def _show_in_help() -> None:
  """Makes `--help` list the flags that our modules define."""
  for module, defined in flags.FLAGS.flags_by_module_dict().items():
    if module.startswith('vit_jax.'):
      for flag in defined:
        flags.FLAGS.register_key_flag_for_module(sys.argv[0], flag)


def define_config() -> None:
  """Defines the flag of the run file, which a command needs."""
  config_flags.DEFINE_config_file(
    'config',
    None,
    'Run file, see configs/. --config.NAME=VALUE changes one of its settings:\n'
    + setting_values.help_text(),
    lock_config=True,
  )
  flags.mark_flag_as_required('config')


def define_image_size() -> None:
  """Defines the flag that `image_size` reads."""
  flags.DEFINE_list(
    'image_size',
    [],
    'height,width in pixels; by default that of the weights. Position embeddings'
    ' are resized.',
  )


def image_size() -> tuple[int, int] | None:
  """Returns (height, width) of the flag; None without it.

  Raises `errors.UserError` if it is malformed.
  """
  size = flags.FLAGS.image_size
  if not size:
    return None
  if len(size) != 2 or not all(n.isdecimal() and int(n) for n in size):
    raise errors.UserError(
      f'image_size={",".join(size)} must be height,width in pixels.'
    )
  return int(size[0]), int(size[1])


# Raised by ml_collections and run files at names and values that they refuse.
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
    argv, nones = none_flags.without(argv)
    rest = flags.FLAGS(argv)
    if nones:
      none_flags.apply(nones)
    _warn_of_repeated_flags()
    _refuse_addresses()
    if 'config' in flags.FLAGS:  # A missing file raises only on access.
      getattr(flags.FLAGS.config, 'trainer', None)
    return rest
  except SystemExit as e:  # absl's help ends with 1.
    is_help = any(word.lstrip('-').startswith('help') for word in argv)
    sys.exit(0 if is_help else e.code)
  except SyntaxError as e:
    reason = f'{e.filename}:{e.lineno} is not Python, as run files are: {e.msg}'
  except BrokenPipeError:  # See `exits.stdout_may_close`.
    raise
  except REFUSALS as e:
    reason = _refusal(e)
  except flags.Error as e:
    reason = str(e) if _PARSING not in str(e) else _refusal(_of_run_file(e))
    reason = re.sub(
      r'.*Flag (\S+) must have a value other than None\.',
      r'\1 must be given.',
      reason,
    )
  sys.exit(f'{exits.program()}: {reason}'.replace('\n', ' '))


# Flags that may be addresses, and texts that may begin like one.
MAY_BE_ADDRESSES = ('dataset', 'model', 'pretrained_dir', 'real_labels')
TEXTS = ('command', 'labels')


def _refuse_addresses() -> None:
  """Raises `flags.ValidationError` where a flag must name a local path."""
  for flag in _own_flags():
    if flag.name in ('workdir', *MAY_BE_ADDRESSES, *TEXTS):
      continue  # `storage.make_workdir` checks workdirs.
    if isinstance(flag.value, str) and storage.is_address(flag.value):
      raise flags.ValidationError(
        f'--{flag.name}={flag.value} is an address: it must be on this machine.'
      )


def _warn_of_repeated_flags() -> None:
  for name in flags.FLAGS:
    flag = flags.FLAGS[name]
    if flag.present > 1 and not isinstance(flag, flags.MultiFlag):
      print(
        f'{exits.program()}: --{name} is given {flag.present} times; the last one'
        f' counts.',
        file=sys.stderr,
      )


_PARSING = 'Error whilst parsing config file'  # And a trace, by ml_collections.


def _of_run_file(error: BaseException) -> BaseException:
  """Returns the error of a run file, which libraries wrapped in `error`."""
  while _PARSING in str(error) and error.__context__:
    error = error.__context__
  return error


def _refusal(error: BaseException) -> str:
  """Returns why a run file or a setting is refused, in one line."""
  if 'Configuration is not available' in str(error):
    reason = str(error.__cause__).strip().splitlines()[-1].strip()
    missing = re.search("No such file or directory: '(.*)'", reason)
    hint = f'.{run_files.hint(missing[1])}' if missing else ''
    return f'--config cannot be read: {reason}{hint}'
  trace = error.__traceback__
  while error.args and isinstance(error.args[0], BaseException):
    error = error.args[0]  # ml_collections wraps the error with the name.
  reason = str(error.args[0] if error.args else error).strip()
  if reason.startswith('get_config()'):
    return (
      f'--config: {reason}. Write it after a colon, --config=FILE.py:ARGUMENT;'
      f' the first lines of the file describe it.'
    )
  frames: list[traceback.FrameSummary] = list(traceback.extract_tb(trace))
  if frames and _is_in_package(frames[-1].filename):
    # A run file's line helps, not that of a function of ours that it calls.
    frames = [f for f in frames if not _is_of_package_or_library(f.filename)]
  if frames and 'site-packages' not in frames[-1].filename:
    return f'{reason} ({frames[-1].filename}:{frames[-1].lineno})'
  if isinstance(error, KeyError):
    name = reason.split("'")[1] if "'" in reason else ''
    hint = official.replacement('config', name)
    return f'there is no setting {reason}. See vit_jax/configs/common.py.{hint}'
  return reason


def _report(*error: Any) -> None:
  """Reports an uncaught error, except those of interrupted checkpoints.

  After the first writer has failed, each of the others would report that it cannot
  continue.
  """
  kind, value, trace = error if len(error) == 3 else error[0][:3]
  if 'Event loop is closed' not in str(value):
    traceback.print_exception(kind, value, trace)


# Warnings that nobody can act on, by logger: matplotlib uses a temporary folder where
# the home cannot be written, checkpoints between evaluations have no metrics, and their
# metadata lies one folder above that of the parameters.
_HIDDEN = {
  'matplotlib': re.compile(
    'mkdir -p failed|not a writable directory|temporary cache directory'
  ),
  'absl': re.compile(
    'Requested `tracked_metric`; did not provide metrics|Metadata file does not exist'
  ),
}


def _is_ours(record: python_logging.LogRecord) -> bool:
  """Whether to log a record: all of ours, and the warnings of libraries.

  Errors while a checkpoint is written are raised too, and not logged twice.
  """
  hidden = _HIDDEN.get(record.name)
  if hidden and hidden.search(record.getMessage()):
    return False
  if record.levelno == python_logging.ERROR and re.search(
    r'/(asyncio|orbax)/', record.pathname
  ):
    return False
  is_warning = record.levelno > python_logging.INFO
  return is_warning or _is_in_package(record.pathname)


def _is_in_package(path: str) -> bool:
  return path.startswith(os.path.join(os.path.dirname(vit_jax.__file__), ''))


def _is_of_package_or_library(path: str) -> bool:
  is_generated = path.startswith('<')
  return is_generated or 'site-packages' in path or _is_in_package(path)
