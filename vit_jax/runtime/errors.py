"""The exception that commands turn into one line."""


class UserError(ValueError):
  """A problem that the user can fix: a setting, a file, a folder, a download.

  Any function may raise it at input that it cannot use; docstrings say where that is
  not obvious.
  """


def first_line(error: BaseException) -> str:
  """Returns the first line of another library's message."""
  return str(error).strip().split('\n')[0]
