"""Splits in TFDS notation, for data of any kind."""

from collections.abc import Sequence
import itertools
import re

from vit_jax.runtime import errors

# Parts of splits that a source is made of: (name, first image, the one after the last).
Ranges = Sequence[tuple[str, int, int]]

# Words in the names of files, by their split, as Hugging Face's `datasets` reads them.
_WORDS = {
  'train': ('train', 'training'),
  'validation': ('validation', 'valid', 'val', 'dev'),
  'test': ('test', 'testing', 'eval', 'evaluation'),
}

_PERCENT = re.compile(r'(\w+)(?:\[(?:(\d+)%)?:(?:(\d+)%)?\])?')

# Evaluates on a part of the training images.
SPLIT_EXAMPLE = "config.pp.train='train[:90%]' config.pp.test='train[90%:]'"


def word(name: str) -> str:
  """Returns the split that the name of a file or folder has in it, or ''."""
  words = {*re.split(r'[^a-z]+', name.lower())}
  return next((s for s, names in _WORDS.items() if words & {*names}), '')


def percents(split: str) -> tuple[str, int, int] | None:
  """Returns ('train', 0, 90) for 'train[:90%]'; None for any other split."""
  if not (part := _PERCENT.fullmatch(split)):
    return None
  name, start, end = part.groups()
  return name, int(start or 0), int(end or 100)


def parse_split(
  split: str, sizes: dict[str, int], dataset: str
) -> list[tuple[str, int, int]]:
  """Returns the `Ranges` of a split in TFDS notation."""
  import tensorflow_datasets as tfds  # Imported late: it takes time.

  infos = tfds.core.SplitDict(
    [
      tfds.core.SplitInfo(name=name, shard_lengths=[size], num_bytes=0)
      for name, size in sizes.items()
    ]
  )
  try:
    parts = tfds.core.ReadInstruction.from_spec(split).to_absolute(infos)
  except (ValueError, AssertionError, KeyError) as e:
    raise errors.UserError(
      f'Split {split!r} of {dataset} cannot be read. There are'
      f' {", ".join(f"{k} ({n} images)" for k, n in sizes.items())}; slices'
      f" look like 'train[:98%]' or 'train[100:200]+test'. Without test images,"
      f' take some of training: {SPLIT_EXAMPLE}.'
    ) from e
  ranges = [
    (p.splitname, p.from_ or 0, sizes[p.splitname] if p.to is None else p.to)
    for p in parts
  ]
  if not any(end > start for _, start, end in ranges):
    raise errors.UserError(
      f'Split {split!r} of {dataset} is empty: it has {sizes} images.'
    )
  return ranges


def overlap(first: Ranges, second: Ranges) -> bool:
  """Whether two splits of a data set have images in common."""
  return any(
    name == other and max(start, other_start) < min(end, other_end)
    for (name, start, end), (other, other_start, other_end) in (
      itertools.product(first, second)
    )
  )
