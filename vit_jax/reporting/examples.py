"""What the page of a run shows of the test images: scores, charts, examples."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vit_jax import predictor as predictor_lib
from vit_jax.configs import labels as labels_lib
from vit_jax.data import label_texts
from vit_jax.data import sources
from vit_jax.evaluation import labelled
from vit_jax.evaluation import multilabel
from vit_jax.evaluation import ranking
from vit_jax.evaluation import regression
from vit_jax.evaluation import scores
from vit_jax.reporting import colours
from vit_jax.reporting import gallery
from vit_jax.reporting import plot
from vit_jax.weights import record as weights_lib

_MOST_CLASSES = 2_000  # Most classes for which the confusion matrix is drawn.
_WORST_CLASSES = 15  # Weakest classes listed.
_PANEL = (4, 2.8)  # Inches, so that letters are legible on a phone.


def sections(
  predictor: predictor_lib.Predictor, source: sources.LabelledSource
) -> dict[str, Any]:
  """Returns what the template of the page needs to show test images.

  Raises:
    errors.UserError: if the model does not fit the images, or none can be decoded.
  """
  labelled.check_task(predictor.weights, source)
  found = _OF_TASK[predictor.weights.task](predictor, source)
  note = colours.note(predictor.image_shape[-1])
  return {**found, 'skipped': len(predictor.skipped), 'colours': note}


def _of_class(
  predictor: predictor_lib.Predictor, source: sources.LabelledSource
) -> dict[str, Any]:
  names = predictor.labels
  p = scores.predict(predictor.probabilities(source), names, source)
  classes = scores.per_class(p, names)
  worst = sorted(classes.items(), key=lambda item: item[1]['accuracy'])
  return {
    'summary': scores.summary(p),
    'num_classes': len(names),
    'matrix': _matrix(p, names),
    'most_classes': _MOST_CLASSES,
    'calibration': plot.svg(_calibration(p)),
    'confused': scores.confused(p, names, most=_WORST_CLASSES),
    'worst_classes': worst[:_WORST_CLASSES],
    'examples': _examples(predictor, source, p),
  }


def _matrix(p: scores.Predictions, names: Sequence[str]) -> str:
  if len(names) > _MOST_CLASSES:
    return ''
  from sklearn import metrics  # Imported late: it takes a second.

  classes, best = range(len(names)), p.best[:, 0]
  shares = metrics.confusion_matrix(
    p.labels, best, labels=classes, normalize='true'
  )
  return plot.svg(plot.matrix(shares, names, x='predicted', y='class'))


def _calibration(p: scores.Predictions) -> Any:
  rows = scores.reliability(p)
  confidence = [row['confidence'] for row in rows]
  accuracy = [row['accuracy'] for row in rows]
  perfect: plot.Line = ([0, 1], [0, 1])
  lines = {'this model': (confidence, accuracy), 'perfect': perfect}
  return plot.curves({'accuracy': lines}, x='confidence', size=_PANEL)


def _examples(
  predictor: predictor_lib.Predictor,
  source: sources.LabelledSource,
  p: scores.Predictions,
) -> dict[str, list[dict[str, Any]]]:
  """Returns the most and the least confident predictions, with pictures."""
  by_confidence = np.argsort(-p.confidence, kind='stable')
  correct = p.correct[by_confidence]
  chosen = {
    'Most confident, correct': by_confidence[correct],
    'Most confident, wrong': by_confidence[~correct],
    'Least confident': by_confidence[::-1],
  }

  def caption(i: int) -> str:
    label = predictor.labels[p.labels[i]]
    predicted = predictor.labels[p.best[i, 0]]
    other = f', predicted {predicted}' if predicted != label else ''
    return f'{label}{other}, {p.confidence[i]:.1%}'

  return gallery.shown(predictor, source, p.places, chosen, caption)


def _of_classes(
  predictor: predictor_lib.Predictor, source: sources.LabelledSource
) -> dict[str, Any]:
  weights, names = predictor.weights, predictor.labels
  rows = labelled.read(predictor.probabilities(source), weights, source)
  classes = labelled.details(rows, weights)['classes']
  limits = multilabel.thresholds(weights)
  margins = [ranking.least_margin(row, limits) for row in rows.outputs]
  wrong = ((rows.outputs >= np.asarray(limits)) != rows.labels).sum(axis=1)

  def caption(i: int) -> str:
    has = [n for n, x in zip(names, rows.labels[i], strict=True) if x]
    found = [n for n, _ in ranking.present(rows.outputs[i], names, limits)]
    other = '' if set(found) == set(has) else f', predicted {_list(found)}'
    return f'{_list(has)}{other}'

  chosen = {
    'Most classes wrong': np.argsort(-wrong, kind='stable')[
      : (wrong > 0).sum()
    ],
    'Nearest to a threshold': np.argsort(margins, kind='stable'),
  }
  return {
    'marks': labelled.summary(rows, weights),
    'of_classes': sorted(
      classes.items(), key=lambda row: row[1]['average_precision']
    ),
    'examples': gallery.shown(predictor, source, rows.places, chosen, caption),
  }


def _list(names: Sequence[str]) -> str:
  return ', '.join(names) or 'none'


def _of_numbers(
  predictor: predictor_lib.Predictor, source: sources.LabelledSource
) -> dict[str, Any]:
  weights, units = predictor.weights, weights_lib.units(predictor.weights) or {}
  rows = labelled.read(predictor.probabilities(source), weights, source)
  titles = [
    f'{name} [{unit}]' if unit else name for name, unit in units.items()
  ]
  # Numbers of different units are compared in standard deviations of the labels.
  spread = np.maximum(rows.labels.std(axis=0), 1e-12)
  wrong = np.abs((rows.outputs - rows.labels) / spread).max(axis=1)

  def caption(i: int) -> str:
    pairs = zip(titles, rows.labels[i], rows.outputs[i], strict=True)
    return '; '.join(
      f'{t}: {label_texts.number(x)}, predicted {label_texts.number(y)}'
      for t, x, y in pairs
    )

  chosen = {
    'Largest errors': np.argsort(-wrong, kind='stable'),
    'Smallest errors': np.argsort(wrong, kind='stable'),
  }
  return {
    'numbers': labelled.summary(rows, weights),
    'of_numbers': list(labelled.details(rows, weights)['numbers'].items()),
    'metrics': (
      regression.MAE,
      regression.RMSE,
      regression.R2,
      regression.SPEARMAN,
    ),
    'scatters': [
      (title, plot.svg(plot.scatter(x, y, title=title, size=_PANEL)))
      for title, x, y in zip(titles, rows.labels.T, rows.outputs.T, strict=True)
    ],
    'examples': gallery.shown(predictor, source, rows.places, chosen, caption),
  }


_OF_TASK: Mapping[str, Callable[..., dict[str, Any]]] = {
  labels_lib.MULTICLASS: _of_class,
  labels_lib.MULTILABEL: _of_classes,
  labels_lib.REGRESSION: _of_numbers,
}
