"""What tokenisers share: files of vocabularies, ids of equal length."""

from collections.abc import Sequence
import os
from typing import Protocol, runtime_checkable

from jaxtyping import Int32
import numpy as np

from vit_jax.runtime import errors
from vit_jax.runtime import storage

TokenIds = Int32[np.ndarray, 'B L']


@runtime_checkable
class Tokenizer(Protocol):
  """Texts to token ids; can be pickled.

  Attributes:
    num_ids: rows that an embedding table needs.
  """

  num_ids: int

  def __call__(self, texts: Sequence[str]) -> TokenIds:
    """Returns the token ids of each text."""


def read(path: os.PathLike | str) -> bytes:
  """Returns a file that is not empty; raises `errors.UserError` without one."""
  try:
    data = storage.local_path(path).read_bytes()
  except OSError as e:
    raise errors.UserError(
      f'The vocabulary {str(path)!r} cannot be read: {e.strerror}.'
    ) from e
  if not data:
    raise errors.UserError(f'The vocabulary {path} is an empty file.')
  return data


def clip_and_pad(
  rows: Sequence[Sequence[int]], length: int, padding: int
) -> TokenIds:
  """Returns rows of one length, the long ones cut, the short ones padded."""
  ids = np.full((len(rows), length), padding, np.int32)
  for target, row in zip(ids, rows, strict=True):
    target[: len(row)] = row[:length]
  return ids
