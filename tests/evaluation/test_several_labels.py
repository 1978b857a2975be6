"""Scores of several classes and of numbers equal those of scikit-learn and SciPy."""

import numpy as np
import pytest
from scipy import special
from scipy import stats
from sklearn import metrics

from vit_jax.evaluation import multilabel
from vit_jax.evaluation import ranking
from vit_jax.evaluation import regression
from vit_jax.evaluation import temperature


@pytest.fixture
def marks():
  """Probabilities and labels of 60 images; no image has the last class."""
  rng = np.random.default_rng(0)
  labels = (rng.random((60, 5)) < [0.5, 0.2, 0.8, 0.05, 0]).astype(np.float32)
  p = special.expit(2 * labels + rng.normal(-1, 1, labels.shape))
  return p.astype(np.float32), labels


def test_scores_of_several_classes(marks):
  p, labels = marks
  limits = [0.5, 0.3, 0.6, 0.5, 2.0]
  seen = labels.any(axis=0)
  found = multilabel.summary(p, labels, limits)
  assert found[multilabel.MAP] == pytest.approx(
    metrics.average_precision_score(labels[:, seen], p[:, seen]), abs=1e-6
  )
  predicted = p >= np.array(limits)
  want = metrics.f1_score(labels[:, seen], predicted[:, seen], average='macro')
  assert found['f1_test'] == pytest.approx(want, abs=1e-6)
  rows = multilabel.per_class(p, labels, limits, 'abcde')
  assert list(rows) == list('abcd')
  assert rows['b']['recall'] == pytest.approx(
    metrics.recall_score(labels[:, 1], predicted[:, 1])
  )
  assert rows['b']['threshold'] == 0.3


def test_scores_of_a_single_class_are_those_of_its_presence(marks):
  p, labels = (array[:, 1:2] for array in marks)
  predicted = p[:, 0] >= 0.3
  found = multilabel.summary(p, labels, [0.3])
  f1 = metrics.f1_score(labels[:, 0], predicted)
  assert found['f1_test'] == pytest.approx(f1)
  row = multilabel.per_class(p, labels, [0.3], ['b'])['b']
  assert row['f1'] == pytest.approx(f1)
  for name in ('precision', 'recall'):
    score = getattr(metrics, f'{name}_score')
    assert row[name] == pytest.approx(score(labels[:, 0], predicted))


def test_best_thresholds_beat_all_others(marks):
  p, labels = marks
  limits = multilabel.best_thresholds(p, labels)
  for k in range(4):
    f1 = lambda limit, k=k: metrics.f1_score(labels[:, k], p[:, k] >= limit)
    best = max(map(f1, p[:, k].tolist()))
    assert f1(limits[k]) == pytest.approx(best)
    # Rounding of a probability must not change a prediction.
    assert np.abs(p[:, k] - limits[k]).min() > 1e-6
  assert limits[4] == multilabel.DEFAULT_THRESHOLD


def test_equal_probabilities_are_not_parted():
  p = np.float32([[0.5], [0.5], [0.5], [0.2]])
  [limit] = multilabel.best_thresholds(p, np.float32([[1], [0], [1], [0]]))
  assert 0.2 < limit < 0.5


def test_a_probability_of_zero_may_be_the_threshold():
  p, labels = np.float32([[0.6], [0.3], [0]]), np.float32([[0], [1], [1]])
  assert multilabel.best_thresholds(p, labels) == [0]


def test_predictions_are_the_classes_at_their_thresholds():
  row = np.float32([0.2, 0.9, 0.6])
  assert ranking.present(row, 'abc', [0.1, 0.5, 0.7]) == [
    ('b', pytest.approx(0.9)),
    ('a', pytest.approx(0.2)),
  ]
  assert ranking.least_margin(row, [0.1, 0.5, 0.7]) == pytest.approx(0.1)


def test_scores_of_numbers():
  rng = np.random.default_rng(0)
  labels = rng.normal(size=(40, 2)).astype(np.float32) * [1, 100]
  predicted = labels + rng.normal(size=(40, 2)) * [0.5, 80]
  found = regression.summary(predicted, labels)
  rank = [stats.spearmanr(*x).statistic for x in zip(labels.T, predicted.T)]  # noqa: B905
  want = {
    'mae_test': metrics.mean_absolute_error(labels, predicted),
    'rmse_test': metrics.root_mean_squared_error(labels, predicted),
    'r2_test': metrics.r2_score(labels, predicted),
    'spearman_test': np.mean(rank),
  }
  assert found == pytest.approx(want, abs=1e-6)
  rows = regression.per_number(predicted, labels, ['a', 'b'], ['m', ''])
  assert rows['b']['mae_test'] == pytest.approx(
    metrics.mean_absolute_error(labels[:, 1], predicted[:, 1])
  )
  assert rows['a']['unit'] == 'm'


def test_scores_of_constant_predictions_are_finite():
  found = regression.summary(np.zeros((3, 1)), np.array([[1.0], [2.0], [3.0]]))
  assert found['spearman_test'] == 0
  assert all(np.isfinite(list(found.values())))
  one = regression.summary(np.zeros((1, 1)), np.ones((1, 1)))
  assert all(np.isfinite(list(one.values())))


def test_predictions_that_are_no_numbers_have_no_scores():
  nothing, ones = np.full((3, 2), np.nan), np.ones((3, 2))
  for found in (
    regression.summary(nothing, ones),
    multilabel.summary(nothing, ones, [0.5, 0.5]),
  ):
    assert np.isnan([*found.values()]).all()


def test_temperature_has_the_smallest_cross_entropy():
  rng = np.random.default_rng(0)
  labels = rng.integers(0, 4, 300)
  logits = 3 * rng.normal(size=(300, 4)) + 4 * np.eye(4)[labels]
  found = temperature.fit(logits, labels)

  def loss(t):
    return metrics.log_loss(labels, special.softmax(logits / t, axis=1))

  assert loss(found) <= min(loss(t) for t in np.geomspace(0.1, 10, 200)) + 1e-6
  assert found > 1  # These logits are too sure.
