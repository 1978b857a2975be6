"""Scores of models that predict numbers; definitions are scikit-learn's and SciPy's."""

from collections.abc import Sequence
from typing import Any

from jaxtyping import Float
import numpy as np

# Mean absolute error, root of the mean squared error, coefficient of determination,
# Spearman's rank correlation. Of several numbers, their means.
MAE, RMSE, R2, SPEARMAN = 'mae_test', 'rmse_test', 'r2_test', 'spearman_test'

Numbers = Float[np.ndarray, 'N K']


def summary(predicted: Numbers, labels: Numbers) -> dict[str, float]:
  """Returns the scores, each the mean over the K numbers."""
  rows = [
    _scores(*column) for column in zip(predicted.T, labels.T, strict=True)
  ]
  return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def per_number(
  predicted: Numbers,
  labels: Numbers,
  names: Sequence[str],
  units: Sequence[str] = (),
) -> dict[str, dict[str, Any]]:
  """Returns the scores of each number, with its unit if there are `units`."""
  found: dict[str, dict[str, Any]] = {}
  for k, name in enumerate(names):
    found[name] = dict(_scores(predicted[:, k], labels[:, k]))
    if units:
      found[name]['unit'] = units[k]
  return found


def _scores(
  predicted: Float[np.ndarray, ' N'], labels: Float[np.ndarray, ' N']
) -> dict[str, float]:
  from scipy import stats  # Imported late: these take a second.
  from sklearn import metrics

  predicted, labels = predicted.astype(float), labels.astype(float)
  if not np.isfinite(predicted).all():  # scikit-learn would refuse them.
    return dict.fromkeys((MAE, RMSE, R2, SPEARMAN), np.nan)
  is_constant = not np.ptp(predicted) or not np.ptp(labels)
  return {
    MAE: float(metrics.mean_absolute_error(labels, predicted)),
    RMSE: float(metrics.root_mean_squared_error(labels, predicted)),
    # R² is undefined for one image, a rank correlation if all ranks are equal.
    R2: float(metrics.r2_score(labels, predicted)) if len(labels) > 1 else 0.0,
    SPEARMAN: 0.0
    if is_constant
    else float(stats.spearmanr(labels, predicted).statistic),
  }
