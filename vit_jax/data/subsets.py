"""Parts of a source: a few images of each class, or all classes equally often."""

from collections.abc import Sequence
from typing import Any

from jaxtyping import Int
import numpy as np

from vit_jax.data import sources
from vit_jax.data.rows import row_weights
from vit_jax.runtime import errors

Indices = Int[np.ndarray, ' N']


class Subset:
  """Some examples of a source of `whole` ones; they may occur more than once."""

  def __init__(self, source: sources.LabelledSource, indices: Indices):
    self._source, self._indices = source, indices
    self.class_names: Sequence[str] = source.class_names
    self.image_shape = source.image_shape
    self.unread = getattr(source, 'unread', {})
    self.split_by = getattr(source, 'split_by', '')
    self.reads_labels = getattr(source, 'reads_labels', False)
    self.task = sources.task_of(source)
    self.label_shape = getattr(source, 'label_shape', ())
    self.ranges = getattr(source, 'ranges', ())
    weights = row_weights.of_source(source)
    self.weights = None if weights is None else weights[indices]
    self.whole: int = getattr(source, 'whole', len(source))

  def __len__(self) -> int:
    return len(self._indices)

  def __getitem__(self, index: int) -> dict[str, Any]:
    return self._source[int(self._indices[index])]

  def labels(self) -> Int[np.ndarray, ' N']:
    return self._source.labels()[self._indices]

  def names(self) -> list[str]:
    names = self._source.names()
    return [names[i] for i in self._indices]


def _by_class(
  source: sources.LabelledSource, fewest: int, setting: str
) -> list[Indices]:
  """Returns the indices of each class; raises where one has too few images."""
  labels, classes = source.labels(), []
  for label, name in enumerate(source.class_names):
    classes.append(np.flatnonzero(labels == label))
    if len(classes[-1]) < fewest:
      raise errors.UserError(
        f'{setting}, but the class {name!r} has {len(classes[-1])} training'
        f' images. Add some, take a larger config.pp.train, or set it lower.'
      )
  return classes


def few_shots(
  source: sources.LabelledSource, shots: int, why: str = ''
) -> Subset:
  """Returns the first `shots` images of each class.

  The files of a folder have a fixed random order, so these are random images, and
  fewer shots are part of more. `why` says in an error who needs so many.
  """
  why = why or f'config.pp.shots is {shots}'
  classes = _by_class(source, shots, why)
  return Subset(source, np.sort(np.concatenate([x[:shots] for x in classes])))


def balanced(source: sources.LabelledSource) -> Subset:
  """Repeats images until each class has as many as the largest."""
  classes = _by_class(source, 1, 'config.pp.balance_classes is True')
  largest = max(map(len, classes))
  return Subset(
    source, np.concatenate([np.resize(x, largest) for x in classes])
  )


def distinct(source: sources.Source) -> sources.Source:
  """Returns each image once, where `balanced` repeats some."""
  if not isinstance(source, Subset):
    return source
  return Subset(source._source, np.unique(source._indices))
