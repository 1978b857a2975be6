"""The one exception that the command lines turn into a single clear line."""


class UserError(ValueError):
  """Something the user can mend: a setting, a file, a folder, a download."""
