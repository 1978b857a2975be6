"""How a setting is declared: its default together with the values it may have."""

from collections.abc import Callable, Iterator
import dataclasses
import math
import types
from typing import Any

import ml_collections
from ml_collections.config_dict import placeholder

from vit_jax.runtime import errors


@dataclasses.dataclass(frozen=True)
class Setting:
  """A default, and which values may take its place.

  Attributes:
    default: value in a new config.
    accepts: whether a value other than None is possible.
    allowed: the possible values, as they follow 'must be'.
    choices: the possible values, where they are few.
    kind: type of the values if None is possible too, for an open setting.
  """

  default: Any
  accepts: Callable[[Any], Any]
  allowed: str
  choices: tuple[Any, ...] = ()
  kind: type | None = None

  def check(self, value: Any, name: str) -> None:
    """Raises `errors.UserError` with name and value if it is not possible."""
    if value is None and self.kind:
      return
    if value is None or not self._is_possible(value):
      hint = errors.did_you_mean(str(value), map(str, self.choices))
      is_said = 'finite' in self.allowed
      finite = ' and finite' if value == math.inf and not is_said else ''
      raise errors.UserError(
        f'{name} is {value!r}, must be {self.allowed}{finite}.{hint}'
      )

  def _is_possible(self, value: Any) -> bool:
    try:
      return bool(self.accepts(value))
    except TypeError:  # A rule reads the type that it wants.
      return False


def one_of(*choices: Any, kind: type | None = None) -> Setting:
  """One of a few values; the default is the first one, or None with a `kind`."""
  allowed = f'one of {choices}'
  default = None if kind else choices[0]
  return Setting(default, lambda x: x in choices, allowed, choices, kind)


def number(
  default: float | None,
  *,
  low: float = -math.inf,
  high: float = math.inf,
  kind: type | None = None,
) -> Setting:
  """A finite number from `low` to `high`, both included."""
  allowed = f'from {low} to {high}'
  if high == math.inf:
    allowed = 'finite' if low == -math.inf else f'at least {low}'
  return Setting(
    default,
    lambda x: low <= x <= high and abs(x) != math.inf,
    allowed,
    kind=kind,
  )


def integer(
  default: int | None,
  *,
  low: int = 0,
  kind: type[int] | None = None,
) -> Setting:
  """An integer of at least `low`."""
  return Setting(
    default,
    lambda x: isinstance(x, int) and not isinstance(x, bool) and x >= low,
    f'an integer of at least {low}',
    kind=kind,
  )


def such(
  default: Any,
  accepts: Callable[[Any], Any],
  allowed: str,
  kind: type | None = None,
) -> Setting:
  """A value that a function accepts; `allowed` follows 'must be'."""
  return Setting(default, accepts, allowed, kind=kind)


def new_config(declared: types.SimpleNamespace) -> ml_collections.ConfigDict:
  """Returns the defaults of declared settings; groups become nested configs."""
  config = ml_collections.ConfigDict()
  for name, value in vars(declared).items():
    if isinstance(value, types.SimpleNamespace):
      value = new_config(value)
    elif isinstance(value, Setting):
      value = placeholder(value.kind) if value.kind else value.default
    config[name] = value
  return config


def by_name(
  declared: types.SimpleNamespace, group: str = ''
) -> Iterator[tuple[str, Setting]]:
  """Yields the settings that have a rule, with names such as 'pp.crop'."""
  for name, value in vars(declared).items():
    if isinstance(value, types.SimpleNamespace):
      yield from by_name(value, f'{group}{name}.')
    elif isinstance(value, Setting):
      yield f'{group}{name}', value
