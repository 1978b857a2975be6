"""Compares the scores of `vit-jax evaluate` with scikit-learn's, of any task.

vit-jax evaluate --model=/tmp/run --dataset=/tmp/cells/several.csv \
  --predictions=/tmp/rows.jsonl --output=/tmp/result.json
python -m benchmarks.check_scores /tmp/rows.jsonl /tmp/result.json

Labels, probabilities and numbers are read from the rows, and every score is computed
from them by scikit-learn and SciPy alone, but for the calibration error, which they lack.
Exits with 1 if a score differs by more than 1e-6.
"""

from collections.abc import Mapping, Sequence
import itertools
import json
import pathlib
from typing import Any

from absl import app
import numpy as np
from scipy import stats
from sklearn import metrics

_TOLERANCE = 1e-6
_BINS = 15  # Bins of the calibration error.

Rows = Sequence[Mapping[str, Any]]


def of_rows(rows: Rows) -> dict[str, float]:
  """Returns the scores of rows; those of a class begin with its name."""
  label = rows[0]['label']
  if isinstance(label, dict):
    return _of_numbers(rows)
  return _of_several(rows) if isinstance(label, list) else _of_class(rows)


def _of_class(rows: Rows) -> dict[str, float]:
  names = list(rows[0]['probabilities'])
  p = _array(rows, 'probabilities')
  want, have = ([row[key] for row in rows] for key in ('label', 'predicted'))
  y, best = ([names.index(x) for x in places] for places in (want, have))
  classes = range(len(names))
  found = {
    'accuracy_test': metrics.accuracy_score(want, have),
    'balanced_accuracy_test': metrics.balanced_accuracy_score(want, have),
    'f1_test': metrics.f1_score(want, have, average='macro'),
    'kappa_test': metrics.cohen_kappa_score(y, best, weights='quadratic'),
    'nll': metrics.log_loss(
      y, p / p.sum(axis=1, keepdims=True), labels=classes
    ),
    'confidence': p.max(axis=1).mean(),
    'ece': _calibration_error(p.max(axis=1), np.equal(y, best)),
  }
  if len(names) > 5:
    found['top5_test'] = metrics.top_k_accuracy_score(y, p, k=5, labels=classes)
  return found


def _calibration_error(p: np.ndarray, right: np.ndarray) -> float:
  """Returns the mean difference of accuracy and confidence (arXiv:1706.04599)."""
  edges = np.linspace(0, 1, _BINS + 1)
  return sum(
    abs(right[inside].sum() - p[inside].sum())
    for low, high in itertools.pairwise(edges)
    if (inside := (p > low) & (p <= high)).any()
  ) / len(p)


def _of_several(rows: Rows) -> dict[str, float]:
  names = list(rows[0]['probabilities'])
  p = _array(rows, 'probabilities')
  want, have = (
    np.array([[name in row[key] for name in names] for row in rows])
    for key in ('label', 'predicted')
  )
  found = {
    'map_test': metrics.average_precision_score(want, p, average='macro'),
    'f1_test': metrics.f1_score(want, have, average='macro'),
  }
  for k, name in enumerate(names):
    found |= {
      f'{name} average_precision': metrics.average_precision_score(
        want[:, k], p[:, k]
      ),
      f'{name} f1': metrics.f1_score(want[:, k], have[:, k]),
      f'{name} precision': metrics.precision_score(want[:, k], have[:, k]),
      f'{name} recall': metrics.recall_score(want[:, k], have[:, k]),
    }
  return found


def _of_numbers(rows: Rows) -> dict[str, float]:
  want, have = _array(rows, 'label'), _array(rows, 'predicted')
  ranks = [
    stats.spearmanr(*pair).statistic
    for pair in zip(want.T, have.T, strict=True)
  ]
  return {
    'mae_test': metrics.mean_absolute_error(want, have),
    'rmse_test': metrics.root_mean_squared_error(want, have),
    'r2_test': metrics.r2_score(want, have),
    'spearman_test': np.mean(ranks),
  }


def _array(rows: Rows, key: str) -> np.ndarray:
  return np.array([list(row[key].values()) for row in rows])


def _flat(result: Mapping[str, Any]) -> dict[str, float]:
  """Returns the scores of a result by the names that `of_rows` gives them."""
  classes = result.get('classes', {}).items()
  of_classes = {
    f'{name} {key}': x for name, row in classes for key, x in row.items()
  }
  return {**result, **of_classes}


def compare(
  predictions: pathlib.Path, result: pathlib.Path
) -> list[tuple[str, float, float]]:
  """Returns name, our value and scikit-learn's of each score in two files."""
  lines = predictions.read_text().splitlines()
  rows = [row for row in map(json.loads, lines) if not row['skipped']]
  ours = _flat(json.loads(result.read_text()))
  return [
    (name, float(ours[name]), float(value))
    for name, value in of_rows(rows).items()
  ]


def main(argv: Sequence[str]) -> None:
  if len(argv) != 3:
    raise app.UsageError('Give the files of predictions and of scores.')
  found = compare(pathlib.Path(argv[1]), pathlib.Path(argv[2]))
  for name, ours, theirs in found:
    print(f'{name:36}{ours:.7f}  scikit-learn {theirs:.7f}')
  worst = max(abs(ours - theirs) for _, ours, theirs in found)
  print(f'{len(found)} scores, largest difference {worst:.1e}')
  if worst > _TOLERANCE:
    raise SystemExit(1)


if __name__ == '__main__':
  app.run(main)
