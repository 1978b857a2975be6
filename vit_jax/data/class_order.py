"""The order of classes that is given by nothing but their names."""

from collections.abc import Collection


def ordered(names: Collection[str]) -> list[str]:
  """Returns names as text sorts them, but whole numbers by their value."""
  if all(name.lstrip('-').isdecimal() for name in names):
    return sorted(names, key=lambda name: (int(name), name))
  return sorted(names)
