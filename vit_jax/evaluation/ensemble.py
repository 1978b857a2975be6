"""Several models that predict together: the mean of their probabilities."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from vit_jax.data import class_names
from vit_jax.evaluation import ranking
from vit_jax.evaluation import scores
from vit_jax.runtime import errors
from vit_jax.weights import record as weights_lib


@runtime_checkable
class Model(Protocol):
  """The part of `predictor.Predictor` that an ensemble uses."""

  weights: weights_lib.Weights
  skipped: dict[str, str]

  def probabilities(self, images: Any) -> ranking.Rows:
    """Yields the index and the probabilities of each decoded image."""


class Ensemble:
  """Models of one task and the same classes, in any order.

  Attributes:
    weights: those of the first model; its thresholds are used.
  """

  def __init__(self, models: Sequence[Model]):
    """Raises `errors.UserError` if the models do not predict the same."""
    self._models, self.weights = models, models[0].weights
    names = list(self.weights.class_names)
    self._orders = []
    for model in models:
      other = model.weights
      mine, theirs = class_names.comparable(names, other.class_names)
      if other.task != self.weights.task or set(mine) != set(theirs):
        raise errors.UserError(
          f'{self.weights.source} predicts {_what(self.weights)},'
          f' {other.source} {_what(other)}: only models with equal classes can'
          f' predict together.'
        )
      if weights_lib.units(other) != weights_lib.units(self.weights):
        raise errors.UserError(
          f'{self.weights.source} predicts in {_units(self.weights)},'
          f' {other.source} in {_units(other)}: numbers of different units have no'
          f' mean.'
        )
      self._orders.append(scores.class_map(names, other.class_names))

  @property
  def labels(self) -> list[str]:
    """Names of the classes, or of the numbers, in the order of `probabilities`."""
    return list(self.weights.class_names)

  @property
  def skipped(self) -> dict[str, str]:
    """Why images could not be decoded by one of the models, by their names."""
    return {k: v for model in self._models for k, v in model.skipped.items()}

  def probabilities(self, images: Any) -> ranking.Rows:
    """Yields the index and the mean output of each image that all models read."""
    for index, rows in _common([m.probabilities(images) for m in self._models]):
      outputs = [
        row[order] for row, order in zip(rows, self._orders, strict=True)
      ]
      yield index, np.mean(outputs, axis=0)


def _common(
  of_models: Sequence[ranking.Rows],
) -> Iterator[tuple[int, list[np.ndarray]]]:
  """Yields the indices that all have, with their rows; indices only rise."""
  of_models = [iter(rows) for rows in of_models]
  ended = (-1, np.empty(0))
  found = [next(rows, ended) for rows in of_models]
  while all(x is not ended for x in found):
    newest = max(index for index, _ in found)
    if all(index == newest for index, _ in found):
      yield newest, [row for _, row in found]
      newest += 1
    found = [
      next(rows, ended) if x[0] < newest else x
      for x, rows in zip(found, of_models, strict=True)
    ]


def _units(weights: weights_lib.Weights) -> str:
  found = weights_lib.units(weights) or {}
  return ', '.join(f'{name} [{unit}]' for name, unit in found.items())


def _what(weights: weights_lib.Weights) -> str:
  names = ', '.join(list(weights.class_names)[:3])
  return f'{len(weights.class_names)} x {weights.task} ({names}, ...)'
