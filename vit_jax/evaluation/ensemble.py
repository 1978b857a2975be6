"""Several models that predict together: the mean of their probabilities."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from vit_jax.evaluation import ranking
from vit_jax.evaluation import scores
from vit_jax.runtime import errors
from vit_jax.weights import record as weights_lib


@runtime_checkable
class Model(Protocol):
  """What `predictor.Predictor` has of it."""

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
      if other.task != self.weights.task or set(other.class_names) != set(
        names
      ):
        raise errors.UserError(
          f'{self.weights.source} predicts {_what(self.weights)},'
          f' {other.source} {_what(other)}: only models with equal classes can'
          f' predict together.'
        )
      self._orders.append(scores.class_map(names, other.class_names))

  @property
  def labels(self) -> list[str]:
    """Names of the classes, or of the numbers, in the order of `probabilities`."""
    return list(self.weights.class_names)

  @property
  def skipped(self) -> dict[str, str]:
    """Why images could not be decoded, by their names."""
    return self._models[0].skipped

  def probabilities(self, images: Any) -> ranking.Rows:
    """Yields the index and the mean output of each decoded image."""
    of_models = [model.probabilities(images) for model in self._models]
    for rows in zip(*of_models, strict=True):
      outputs = [
        row[order] for (_, row), order in zip(rows, self._orders, strict=True)
      ]
      yield rows[0][0], np.mean(outputs, axis=0)


def _what(weights: weights_lib.Weights) -> str:
  names = ', '.join(list(weights.class_names)[:3])
  return f'{len(weights.class_names)} x {weights.task} ({names}, ...)'
