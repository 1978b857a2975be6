"""The settings of run files and their values, for `--help` and completion."""

from collections.abc import Iterator, Mapping
from typing import Any

from vit_jax.configs import common
from vit_jax.configs import models


def help_text() -> str:
  """Returns a line for each setting whose values are known."""
  lines = []
  for name in _names(common.get_config().to_dict()):
    values = ', '.join(str(v) if v != '' else "''" for v in _choices(name))
    if name in common.RULES:
      values = values or common.RULES[name].allowed
    if values:
      lines.append(f'{name}: {values}')
  return '\n'.join(lines)


def completions(command: str) -> list[str]:
  """Returns `NAME=` of each setting, and `NAME=VALUE` where there are few values.

  The settings of `config.model` are those of all families.
  """
  config = common.get_config()
  if command == 'sweep':
    config = common.with_sweep(config, ())
  trees = [config.to_dict()]
  trees += [{'model': c.to_dict()} for c in models.MODEL_CONFIGS.values()]
  names = dict.fromkeys(name for tree in trees for name in _names(tree))
  values = [('', *_choices(name)) for name in names]
  pairs = zip(names, values, strict=True)
  return list(
    dict.fromkeys(f'{name}={value}' for name, row in pairs for value in row)
  )


def _names(tree: Mapping[str, Any], prefix: str = '') -> Iterator[str]:
  for name, value in tree.items():
    if isinstance(value, Mapping):
      yield from _names(value, f'{prefix}{name}.')
    else:
      yield f'{prefix}{name}'


def _choices(name: str) -> tuple[Any, ...]:
  """Returns the values of a setting where they are few, else ()."""
  if name in common.RULES:
    return common.RULES[name].choices
  *groups, field = name.split('.')
  config = common.get_config()
  for group in groups:
    config = config.get(group) or {}
  is_bool = field in config and config.get_type(field) is bool
  return (True, False) if is_bool else ()
