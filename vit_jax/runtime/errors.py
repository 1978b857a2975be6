"""The one exception that the command lines turn into a single clear line."""


class UserError(ValueError):
  """Something the user can mend: a setting, a file, a folder, a download."""


def first_line(error: BaseException) -> str:
  """Returns the first line of what another library says."""
  return str(error).strip().split('\n')[0]
