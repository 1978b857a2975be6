"""`--config.NAME=None`, which ml_collections does not parse."""

from collections.abc import Sequence
import functools
import operator
import re

from absl import flags
import flax.traverse_util
from ml_collections import config_flags

from vit_jax.configs import common

_NONE = re.compile(r'--?config\.([\w.]+)=None')


def without(argv: Sequence[str]) -> tuple[list[str], list[str]]:
  """Returns the other arguments, and the settings that are to be None.

  Only settings whose default is None may be.
  """
  found = {word: match[1] for word in argv if (match := _NONE.fullmatch(word))}
  if not found:  # As usual.
    return list(argv), []
  flat = flax.traverse_util.flatten_dict(common.get_config().to_dict(), sep='.')
  found = {k: name for k, name in found.items() if flat.get(name, '') is None}
  return [word for word in argv if word not in found], list(found.values())


def apply(names: Sequence[str]) -> None:
  """Sets settings of the flag `config` to None, as if they had been parsed."""
  given = config_flags.get_override_values(flags.FLAGS['config'])
  for name in names:
    *groups, field = name.split('.')
    config = functools.reduce(operator.getitem, groups, flags.FLAGS.config)
    config[field] = given[name] = None
