"""The exception that commands turn into one line."""

from collections.abc import Iterable, Iterator, Sequence
import contextlib
import difflib
import os


class UserError(ValueError):
  """A problem that the user can fix: a setting, a file, a folder, a download.

  Any function may raise it at input that it cannot use; docstrings say where that is
  not obvious.

  Attributes:
    filename: the file or address that could not be read, as of an `OSError`; None if
      the error is about something else.
  """

  filename: str | None = None


@contextlib.contextmanager
def writing(path: os.PathLike | str) -> Iterator[None]:
  """Turns an error of the disk into a `UserError` that names what was written."""
  try:
    yield
  except OSError as e:
    raise UserError(f'{path} cannot be written: {e.strerror or e}.') from e


@contextlib.contextmanager
def reading() -> Iterator[None]:
  """Turns an error of the disk into a `UserError` that names the file or folder."""
  try:
    yield
  except OSError as e:
    raise UserError(f'{e.filename} cannot be read: {e.strerror}.') from e


def some(names: Sequence[str], most: int = 5) -> str:
  """Returns the first names, 'a, b, c, d, e and 2 more'."""
  more = f' and {len(names) - most} more' * (len(names) > most)
  return f'{", ".join(names[:most])}{more}'


def did_you_mean(name: str, known: Iterable[str]) -> str:
  """Returns ' Did you mean NAME?' for the known name that is nearest, or ''."""
  near = difflib.get_close_matches(name, list(known), 1)
  return f' Did you mean {near[0]!r}?' if near else ''


def first_line(error: BaseException) -> str:
  """Returns the first line of another library's message."""
  return str(error).strip().split('\n')[0]
