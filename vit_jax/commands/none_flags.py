"""`--config.NAME=None`, which ml_collections does not parse."""

from collections.abc import Sequence
import functools
import operator

from absl import flags
import flax.traverse_util
from ml_collections import config_flags

from vit_jax.configs import common


def without(argv: Sequence[str]) -> tuple[list[str], list[str]]:
  """Returns the other arguments, and the settings that are to be None.

  Only settings whose default is None may be.
  """
  flat = flax.traverse_util.flatten_dict(common.get_config().to_dict(), sep='.')
  words = {f'config.{k}=None': k for k, v in flat.items() if v is None}
  found = [(word, words.get(word.lstrip('-'))) for word in argv]
  return (
    [word for word, name in found if name is None],
    [name for _, name in found if name is not None],
  )


def apply(names: Sequence[str]) -> None:
  """Sets settings of the flag `config` to None, as if they had been parsed."""
  given = config_flags.get_override_values(flags.FLAGS['config'])
  for name in names:
    *groups, field = name.split('.')
    config = functools.reduce(operator.getitem, groups, flags.FLAGS.config)
    config[field] = given[name] = None
