"""Scores of predictions for labelled images of any task, ready for JSON."""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import pathlib
from typing import Any

from absl import logging
from jaxtyping import Float
import numpy as np
import tqdm

from vit_jax.configs import labels as labels_lib
from vit_jax.data import real_labels
from vit_jax.data import sources
from vit_jax.data.rows import table_files
from vit_jax.evaluation import multilabel
from vit_jax.evaluation import ranking
from vit_jax.evaluation import regression
from vit_jax.evaluation import scores
from vit_jax.runtime import errors
from vit_jax.weights import record as weights_lib

Result = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Rows:
  """Outputs of a model with several classes or numbers an image, and the labels.

  Attributes:
    places: indices of the images in their source, [N].
    outputs: probabilities or numbers.
    labels: what they should be, in the same order.
  """

  places: np.ndarray
  outputs: Float[np.ndarray, 'N K']
  labels: Float[np.ndarray, 'N K']


@dataclasses.dataclass(frozen=True)
class Score:
  """One score of a model, with the name that `evaluate` prints."""

  name: str
  value: float

  def worse_than(self, other: 'Score') -> float:
    """Returns by how much it is worse; of an error, as a share of the other one."""
    if self.name in labels_lib.ERRORS:
      return self.value / max(other.value, 1e-12) - 1
    return other.value - self.value


def first_score(
  rows: ranking.Rows,
  weights: weights_lib.Weights,
  source: sources.LabelledSource,
) -> Score:
  """Returns the score that chooses the best checkpoint, if no other one is set.

  Raises as `read` does.
  """
  name = labels_lib.METRICS[weights.task][0]
  if weights.task == labels_lib.MULTICLASS:
    p = scores.predict(rows, weights.class_names, source)
    return Score(name, scores.summary(p)[name])
  return Score(name, summary(read(rows, weights, source), weights)[name])


def columns_of(
  weights: weights_lib.Weights, given: Mapping[str, str]
) -> table_files.Columns:
  """Returns the columns of a table to evaluate a model with; `given` are fields.

  The numbers that a model predicts have the names of their columns. Weights of images,
  which only training has, are not read.
  """
  fields = {field.name for field in dataclasses.fields(table_files.Columns)}
  for name in given:
    if name not in fields:
      hint = errors.did_you_mean(name, fields)
      raise errors.UserError(f'columns has no field {name!r}.{hint}')
  known: dict[str, Any] = {'weight': '', 'task': weights.task}
  if weights.task == labels_lib.REGRESSION:
    known['target'] = ','.join(weights.class_names)
  return dataclasses.replace(table_files.DEFAULT, **{**known, **given})


def splits(
  models: Sequence[weights_lib.Weights],
  dataset: str,
  train: str,
  test: str,
  columns: table_files.Columns,
) -> tuple[str, str]:
  """Returns the splits to fit probes to and to evaluate.

  Of a data set without a test split, they are those of the run that made the weights,
  unless `train` or `test` is another one than 'train' and 'test'.

  Raises:
    errors.UserError: if several models were trained on different splits.
  """
  if test != 'test' or not sources.is_unsplit(dataset, columns):
    return sources.default_splits(dataset, train, test, columns)
  why = 'the weights do not say what they were trained on'
  first, *others = [x.info.get('splits', [train, test]) for x in models]
  if differing := [x for x in others if x != first]:
    raise errors.UserError(
      f'The models were trained on {first[0]} and {differing[0][0]}, but {dataset}'
      f' has no test split. Say with split=NAME which images none of them has seen.'
    )
  if first[1] != 'test' and train == 'train':
    train, test = first
    trained_on = models[0].info.get('dataset', 'their data')
    why = f'the weights were trained on {train} of {trained_on}'
  train, test = sources.default_splits(dataset, train, test, columns)
  logging.info(
    "%s has no test split: %s is evaluated, as %s. The split 'train' is all.",
    *(dataset, test, why),
  )
  return train, test


def check_task(
  weights: weights_lib.Weights, source: sources.LabelledSource
) -> None:
  """Raises `errors.UserError` unless images are labelled with what is predicted."""
  task = sources.task_of(source)
  if task != weights.task:
    raise errors.UserError(
      f'The task of the model is {weights.task}, the labels of the images are for'
      f' {task}. Choose other columns, or another model.'
    )


def read(
  rows: ranking.Rows,
  weights: weights_lib.Weights,
  source: sources.LabelledSource,
) -> Rows:
  """Returns the outputs for a source, with its labels in the model's order.

  Raises:
    errors.UserError: if the model does not know the classes or numbers, a number
      that it predicts has no labels, or no image can be decoded.
  """
  names = list(weights.class_names)
  order = scores.class_map(source.class_names, names)
  without = [name for k, name in enumerate(names) if k not in order]
  if without and weights.task == labels_lib.REGRESSION:
    raise errors.UserError(
      f'The images are labelled with {", ".join(source.class_names)}, the model'
      f' also predicts {", ".join(without)}. Name a column for each number.'
    )
  labels = np.zeros((len(source), len(names)), np.float32)
  labels[:, order] = source.labels()
  found = list(tqdm.tqdm(rows, total=len(source), disable=None))
  if not found:
    raise errors.UserError('None of the images can be decoded.')
  places, outputs = zip(*found, strict=True)
  return Rows(np.array(places), np.stack(outputs), labels[list(places)])


def all_scores(
  rows: ranking.Rows,
  weights: weights_lib.Weights,
  source: sources.LabelledSource,
  real_file: pathlib.Path | None = None,
) -> Result:
  """Returns all scores of the outputs of a model for a source.

  Args:
    rows: the outputs.
    weights: the model.
    source: the images and labels.
    real_file: ReaL labels of ImageNet, to score with them too.

  Raises:
    errors.UserError: as `read` does.
  """
  if weights.task != labels_lib.MULTICLASS:
    found = read(rows, weights, source)
    result = summary(found, weights) | details(found, weights)
  else:
    p = scores.predict(rows, weights.class_names, source)
    result = scores.summary(p) | scores.details(p, weights.class_names)
    if real_file:
      accepted = real_labels.read(real_file, source, p.places)
      numbers = real_labels.numbers(weights.class_names)
      result |= scores.real_accuracy(p, accepted, numbers)
  return {**result, scores.SKIPPED: len(source) - result[scores.EXAMPLES]}


def summary(rows: Rows, weights: weights_lib.Weights) -> Result:
  """Returns the scores of all images together."""
  numbers = _SUMMARIES[weights.task](rows, weights)
  return {scores.EXAMPLES: len(rows.places), **numbers}


def details(rows: Rows, weights: weights_lib.Weights) -> Result:
  """Returns the scores of each class, or of each number."""
  return _DETAILS[weights.task](rows, weights)


_SUMMARIES: Mapping[str, Callable[..., dict[str, float]]] = {
  labels_lib.MULTILABEL: lambda rows, weights: multilabel.summary(
    rows.outputs, rows.labels, multilabel.thresholds(weights)
  ),
  labels_lib.REGRESSION: lambda rows, weights: regression.summary(
    rows.outputs, rows.labels
  ),
}

_DETAILS: Mapping[str, Callable[..., Result]] = {
  labels_lib.MULTILABEL: lambda rows, weights: {
    'classes': multilabel.per_class(
      rows.outputs,
      rows.labels,
      multilabel.thresholds(weights),
      weights.class_names,
    )
  },
  labels_lib.REGRESSION: lambda rows, weights: {
    'numbers': regression.per_number(
      rows.outputs, rows.labels, weights.class_names, weights.units
    )
  },
}
