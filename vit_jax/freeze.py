"""Parameters that stay as they are: no gradient, no optimizer state."""

from collections.abc import Mapping, Sequence
import re
from typing import Any

import flax.traverse_util

from vit_jax import errors

Tree = dict[str, Any]


def split(
  params: Mapping[str, Any], patterns: Sequence[str]
) -> tuple[Tree, Tree]:
  """Returns the parameters that are trained and those that are frozen.

  Args:
    params: tree of arrays.
    patterns: regular expressions; a parameter is frozen if one of them matches
      from the start of its name, 'Transformer/encoderblock_0/...'.

  Raises:
    errors.UserError: if a pattern is none or matches nothing, or all is frozen.
  """
  flat = flax.traverse_util.flatten_dict(dict(params), sep='/')
  frozen = set()
  for pattern in patterns:
    try:
      matched = {name for name in flat if re.match(pattern, name)}
    except (re.error, OverflowError, RecursionError) as e:
      raise errors.UserError(
        f'config.freeze has {pattern[:50]!r}, no regular expression: {e}.'
      ) from e
    if not matched:
      raise errors.UserError(
        f'config.freeze has {pattern!r}, which is the start of no parameter.'
        f' Names are such as {", ".join(sorted(flat)[:3])}.'
      )
    frozen |= matched
  if frozen == set(flat):
    raise errors.UserError(
      f'config.freeze is {tuple(patterns)}, which leaves nothing to train.'
    )
  parts = (
    {name: x for name, x in flat.items() if name not in frozen},
    {name: x for name, x in flat.items() if name in frozen},
  )
  return tuple(flax.traverse_util.unflatten_dict(p, sep='/') for p in parts)


def join(trained: Mapping[str, Any], frozen: Mapping[str, Any]) -> Tree:
  """Undoes `split`."""
  flat = flax.traverse_util.flatten_dict(dict(trained))
  flat |= flax.traverse_util.flatten_dict(dict(frozen))
  return flax.traverse_util.unflatten_dict(flat)
