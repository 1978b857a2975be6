"""What the outputs of a model mean: losses and metrics of classes and of numbers."""

from collections.abc import Callable, Mapping
import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
from jaxtyping import Array
import ml_collections
import numpy as np

from vit_jax.configs import labels as labels_lib
from vit_jax.configs import losses as losses_config
from vit_jax.data import batching
from vit_jax.data import class_counts
from vit_jax.data import numbers
from vit_jax.evaluation import all_outputs
from vit_jax.evaluation import evaluator
from vit_jax.evaluation import multilabel
from vit_jax.evaluation import regression
from vit_jax.evaluation import temperature
from vit_jax.models import distillation
from vit_jax.models import inference
from vit_jax.models import losses

Fields = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Outputs:
  """Losses and metrics of a run whose images have one class each.

  Attributes:
    config: settings of the run.
    data: its splits.
    train_loss: the loss of each image in training.
    test_loss: the same without label smoothing, class weights and focal loss.
    scale: mean and standard deviation of the numbers; None for classes.
  """

  config: ml_collections.ConfigDict
  data: batching.Data
  train_loss: losses.Loss
  test_loss: losses.Loss
  scale: numbers.Scale | None = None

  def make_eval_fn(
    self, model: nn.Module, mesh: jax.sharding.Mesh
  ) -> evaluator.EvalFn:
    """Returns a function from parameters to metrics of the test split."""
    config = self.config
    return evaluator.make_eval_fn(
      model,
      self.data,
      mesh,
      loss=self.test_loss,
      batch_size=config.batch_eval,
      probe_names=config.evaluators,
    )

  def with_teacher(
    self, decide: Callable[[Array], Array]
  ) -> distillation.Distillation:
    """Returns the loss in training with a teacher; `decide` predicts by its logits."""
    config, loss = self.config, self.test_loss
    of_teacher = distillation.hard(loss, decide)
    if config.distill.loss == losses_config.SOFT:
      temperature = config.distill.temperature
      of_teacher = distillation.soft(config.loss, loss, temperature)
    return distillation.Distillation(
      self.train_loss, of_teacher, config.distill.weight
    )

  def make_fit(
    self, model: nn.Module, mesh: jax.sharding.Mesh
  ) -> Callable[[Any], Fields]:
    """Returns a function from parameters to the values fitted on held-out images."""
    read, holdout = self._reader(model, mesh), self.data.holdout

    def fit(params: Any) -> Fields:
      if holdout is None:
        return {}
      params = inference.cast_weights(params, model.dtype)
      return self._fit(*read(params, holdout.source))

    return fit

  def _fit(self, logits: np.ndarray, labels: np.ndarray) -> Fields:
    if self.config.loss == 'softmax':
      return {'temperature': temperature.fit(logits, labels)}
    return {}

  def _reader(
    self, model: nn.Module, mesh: jax.sharding.Mesh
  ) -> all_outputs.Reader:
    return all_outputs.reader(
      functools.partial(inference.apply, model),
      self.data,
      mesh,
      self.config.batch_eval,
    )


@dataclasses.dataclass(frozen=True)
class _OfAll(Outputs):
  """Outputs whose metrics need those of all images at once."""

  def make_eval_fn(
    self, model: nn.Module, mesh: jax.sharding.Mesh
  ) -> evaluator.EvalFn:
    fit = self.make_fit(model, mesh)
    return evaluator.make_eval_fn_of_all(
      model,
      self.data,
      self._reader(model, mesh),
      loss=self.test_loss,
      summary=lambda params, *rows: self._summary(fit(params), *rows),
    )

  def _summary(
    self, fitted: Fields, logits: np.ndarray, labels: np.ndarray
  ) -> dict[str, float]:
    """Returns the metrics of a split; `fitted` is what held-out images decide."""
    raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class _Marks(_OfAll):
  """Outputs for images with any number of classes."""

  def _fit(self, logits: np.ndarray, labels: np.ndarray) -> Fields:
    p = np.asarray(jax.nn.sigmoid(logits))
    return {'thresholds': multilabel.best_thresholds(p, labels)}

  def _summary(
    self, fitted: Fields, logits: np.ndarray, labels: np.ndarray
  ) -> dict[str, float]:
    default = [multilabel.DEFAULT_THRESHOLD] * logits.shape[1]
    p = np.asarray(jax.nn.sigmoid(logits))
    return multilabel.summary(p, labels, fitted.get('thresholds', default))


@dataclasses.dataclass(frozen=True)
class _Numbers(_OfAll):
  """Outputs for images that are labelled with numbers."""

  def _summary(
    self, fitted: Fields, logits: np.ndarray, labels: np.ndarray
  ) -> dict[str, float]:
    del fitted
    assert self.scale is not None
    predicted = logits * self.scale.std + self.scale.mean
    return regression.summary(predicted, labels)


def of_task(config: ml_collections.ConfigDict, data: batching.Data) -> Outputs:
  """Returns what the outputs of a run mean.

  Raises:
    errors.UserError: if classes have other weights than `config.class_weights`, or
      all images the same number.
  """
  return _OF_TASK[config.task](config, data)


def _of_classes(
  config: ml_collections.ConfigDict, data: batching.Data
) -> Outputs:
  loss = losses.LOSSES[config.loss]
  train_loss = functools.partial(
    loss, label_smoothing=config.label_smoothing, **_weights(config, data)
  )
  return Outputs(config, data, train_loss, loss)


def _of_marks(
  config: ml_collections.ConfigDict, data: batching.Data
) -> Outputs:
  loss = losses.multilabel_cross_entropy
  train_loss = functools.partial(loss, **_weights(config, data))
  return _Marks(config, data, train_loss, loss)


def _of_numbers(
  config: ml_collections.ConfigDict, data: batching.Data
) -> Outputs:
  scale = numbers.scale(data.train.source)  # type: ignore[arg-type]
  loss = losses.of_numbers(config.loss, scale.mean, scale.std)
  return _Numbers(config, data, loss, loss, scale)


def _weights(
  config: ml_collections.ConfigDict, data: batching.Data
) -> dict[str, Any]:
  weights = class_counts.weights(config.class_weights, data.train.source)
  return {'class_weights': weights, 'focal_gamma': config.focal_gamma}


_OF_TASK: Mapping[str, Callable[..., Outputs]] = {
  labels_lib.MULTICLASS: _of_classes,
  labels_lib.MULTILABEL: _of_marks,
  labels_lib.REGRESSION: _of_numbers,
}
