"""Parts of a source: a few images of each class, or all classes equally often."""

from collections.abc import Sequence
from typing import Any

from jaxtyping import Int
import numpy as np

from vit_jax.data import sources
from vit_jax.runtime import errors

Indices = Int[np.ndarray, ' N']


class Subset:
  """Some examples of a source; an example may occur more than once.

  Attributes:
    how: how the examples were chosen, for the log.
  """

  def __init__(
    self, source: sources.LabelledSource, indices: Indices, how: str = ''
  ):
    self._source, self._indices = source, indices
    before = f'{source.how}; ' if isinstance(source, Subset) else ''
    self.how: str = before + how
    self.class_names: Sequence[str] = source.class_names
    self.image_shape = source.image_shape
    self.unread = getattr(source, 'unread', {})

  def __len__(self) -> int:
    return len(self._indices)

  def __getitem__(self, index: int) -> dict[str, Any]:
    return self._source[int(self._indices[index])]

  def labels(self) -> Int[np.ndarray, ' N']:
    return self._source.labels()[self._indices]


def _by_class(
  source: sources.LabelledSource, fewest: int, setting: str, advice: str
) -> list[Indices]:
  """Returns the indices of each class; raises where one has too few images."""
  labels = source.labels()
  classes = [
    np.flatnonzero(labels == i) for i in range(len(source.class_names))
  ]
  for name, indices in zip(source.class_names, classes, strict=True):
    if len(indices) < fewest:
      raise errors.UserError(
        f'{setting}, but the class {name!r} has {len(indices)} training images.'
        f' {advice}'
      )
  return classes


def few_shots(source: sources.LabelledSource, shots: int) -> Subset:
  """Returns the first `shots` images of each class.

  The files of a folder have a fixed random order, so these are random images, and
  fewer shots are part of more. Raises `errors.UserError` if a class has fewer.
  """
  advice = 'Take fewer, or a larger config.pp.train.'
  classes = _by_class(source, shots, f'config.pp.shots is {shots}', advice)
  indices = np.sort(np.concatenate([x[:shots] for x in classes]))
  how = f'{shots} of each class out of {len(source)}: config.pp.shots'
  return Subset(source, indices, how)


def balanced(source: sources.LabelledSource) -> Subset:
  """Repeats images until each class has as many as the largest.

  Raises `errors.UserError` if a class has none.
  """
  advice = 'Add some, or leave it out.'
  classes = _by_class(source, 1, 'config.pp.balance_classes is True', advice)
  largest = max(map(len, classes))
  indices = np.concatenate([np.resize(x, largest) for x in classes])
  how = (
    f'{len(source)} different ones, repeated until each class has {largest}:'
    f' config.pp.balance_classes'
  )
  return Subset(source, indices, how)
