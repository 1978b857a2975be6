"""Frozen parameters: they have no gradient and no optimizer state."""

from collections.abc import Mapping, Sequence
import re
from typing import Any

import flax.traverse_util

from vit_jax.models import blocks
from vit_jax.runtime import errors

Tree = dict[str, Any]


def split(
  params: Mapping[str, Any], patterns: Sequence[str]
) -> tuple[Tree, Tree]:
  """Returns the parameters to train and the frozen ones.

  Args:
    params: tree of arrays.
    patterns: regular expressions; each freezes the parameters whose name, such as
      'Transformer/encoderblock_0/...', it matches from the start. Stacked blocks
      have the same names.

  Raises:
    errors.UserError: if a pattern is invalid or matches nothing, everything is
      frozen, or only some blocks of a stacked array are.
  """
  flat = flax.traverse_util.flatten_dict(dict(params), sep='/')
  by_array = {name: blocks.official_names(name, x) for name, x in flat.items()}
  names = [name for group in by_array.values() for name in group]
  matched = _matched(names, patterns)
  if matched == set(names):
    raise errors.UserError(
      f'config.freeze is {tuple(patterns)}, which leaves nothing to train.'
    )
  for array, group in by_array.items():
    count = len(matched.intersection(group))
    if 0 < count < len(group):
      raise errors.UserError(
        f'config.freeze is {tuple(patterns)}, which freezes {count} of the'
        f' {len(group)} blocks of {array}, one array with config.scan_layers.'
        f' Freeze all blocks or none, or set config.scan_layers=False.'
      )
  frozen = {array for array, group in by_array.items() if group[0] in matched}
  parts = (
    {name: x for name, x in flat.items() if name not in frozen},
    {name: x for name, x in flat.items() if name in frozen},
  )
  return tuple(flax.traverse_util.unflatten_dict(p, sep='/') for p in parts)


def _matched(names: Sequence[str], patterns: Sequence[str]) -> set[str]:
  """Returns the names that any pattern matches; each must match at least one."""
  found = set()
  for pattern in patterns:
    try:
      matched = {name for name in names if re.match(pattern, name)}
    except (re.error, OverflowError, RecursionError) as e:
      raise errors.UserError(
        f'config.freeze has {pattern[:50]!r}, not a regular expression: {e}.'
      ) from e
    if not matched:
      raise errors.UserError(
        f'config.freeze has {pattern!r}, which matches no parameter.'
        f' Some names: {", ".join(sorted(names)[:3])}.'
      )
    found |= matched
  return found


def join(trained: Mapping[str, Any], frozen: Mapping[str, Any]) -> Tree:
  """Undoes `split`."""
  flat = flax.traverse_util.flatten_dict(dict(trained))
  flat |= flax.traverse_util.flatten_dict(dict(frozen))
  return flax.traverse_util.unflatten_dict(flat)
