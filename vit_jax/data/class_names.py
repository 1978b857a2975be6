"""Names of classes, or of numbers, as they are compared and ordered."""

import collections
from collections.abc import Collection, Iterable, Sequence
import decimal
import re
from typing import Any
import unicodedata

from vit_jax.data import wordnet
from vit_jax.runtime import errors


def text(value: Any) -> str:
  """Returns a label as text that compares equal on every machine."""
  if isinstance(value, bytes):
    value = value.decode(errors='backslashreplace')
  return unicodedata.normalize('NFC', str(value)).strip()


def numbered(count: int) -> list[str]:
  """Returns 'class 0', 'class 1', ..., the names of classes without names."""
  return [f'class {i}' for i in range(count)]


def distinct(names: Iterable[Any], where: str) -> list[str]:
  """Returns names as `text`; raises `errors.UserError` if one is empty or twice."""
  texts = [text(name) for name in names]
  counts = collections.Counter(texts)
  if wrong := [name for name in texts if not name or counts[name] > 1]:
    what = f'{wrong[0]!r} twice' if wrong[0] else 'an empty name'
    raise errors.UserError(f'{where} has {what}: each must be another name.')
  return texts


def ordered(names: Collection[str]) -> list[str]:
  """Returns names as text sorts them, but numbers such as '-2' or '1.0' by their value."""
  if all(re.fullmatch(r'-?\d+(\.\d+)?', name) for name in names):
    return sorted(names, key=lambda name: (decimal.Decimal(name), name))
  return sorted(names)


def comparable(
  some: Sequence[str], others: Sequence[str]
) -> tuple[list[str], list[str]]:
  """Returns two lists of names as they are compared, to find some among others.

  Where all are found so, both lists are the WordNet ids of classes of ImageNet, which
  one may call by ids and the other by words; or numbers, as '01', '1' and '1.0' are
  the same.
  """
  some, others = [text(x) for x in some], [text(x) for x in others]
  for convert in (list, wordnet.ids, _numbers):
    found, among = convert(some), convert(others)
    if found is not None and among is not None and set(found) <= set(among):
      return found, among
  return some, others


def _numbers(names: Sequence[str]) -> list[str] | None:
  """Returns one spelling of each number; None if one is none or occurs twice."""
  try:
    values = [str(decimal.Decimal(name).normalize()) for name in names]
  except decimal.InvalidOperation:
    return None
  return values if len(set(values)) == len(values) else None
