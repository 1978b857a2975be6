"""Parts of a source: a few images of each class, or each class as often."""

from collections.abc import Sequence
from typing import Any

from jaxtyping import Int
import numpy as np

from vit_jax.data import sources
from vit_jax.runtime import errors

Indices = Int[np.ndarray, ' N']


class Subset:
  """Some examples of a source; one may be there more than once.

  Attributes:
    how: how they were chosen and from how many, for the log.
  """

  def __init__(
    self, source: sources.LabelledSource, indices: Indices, how: str = ''
  ):
    self._source, self._indices = source, indices
    before = [source.how] if isinstance(source, Subset) else []
    self.how = '; '.join([*before, how])
    self.class_names: Sequence[str] = source.class_names
    self.image_shape = source.image_shape
    self.unread = getattr(source, 'unread', {})

  def __len__(self) -> int:
    return len(self._indices)

  def __getitem__(self, index: int) -> dict[str, Any]:
    return self._source[int(self._indices[index])]

  def labels(self) -> Int[np.ndarray, ' N']:
    """Returns those of all examples."""
    return self._source.labels()[self._indices]


def _by_class(source: sources.LabelledSource) -> list[Indices]:
  labels = source.labels()
  return [np.flatnonzero(labels == i) for i in range(len(source.class_names))]


def few_shots(source: sources.LabelledSource, shots: int) -> Subset:
  """Returns the first images of each class.

  The files of a folder are in a fixed random order, so these are random ones,
  and those of fewer shots are among those of more.

  Args:
    source: of labelled images.
    shots: how many of each class.

  Raises:
    errors.UserError: if a class has fewer.
  """
  classes = _by_class(source)
  for name, indices in zip(source.class_names, classes, strict=True):
    if len(indices) < shots:
      raise errors.UserError(
        f'config.pp.shots is {shots}, but the class {name!r} has only'
        f' {len(indices)} training images. Take fewer, or a larger'
        f' config.pp.train.'
      )
  return Subset(
    source,
    np.sort(np.concatenate([x[:shots] for x in classes])),
    f'{shots} of each class out of {len(source)}: config.pp.shots',
  )


def balanced(source: sources.LabelledSource) -> Subset:
  """Returns each class as often as the largest: images of others repeat.

  Args:
    source: of labelled images, some of each class.

  Raises:
    errors.UserError: if a class has none.
  """
  classes = _by_class(source)
  largest = max(map(len, classes))
  for name, indices in zip(source.class_names, classes, strict=True):
    if not len(indices):
      raise errors.UserError(
        f'config.pp.balance_classes is True, but the class {name!r} has no'
        f' training images.'
      )
  return Subset(
    source,
    np.concatenate([np.resize(x, largest) for x in classes]),
    f'{len(source)} different ones, repeated until each class has {largest}:'
    f' config.pp.balance_classes',
  )
