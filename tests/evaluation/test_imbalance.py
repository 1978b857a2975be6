"""Scores and losses for rare and ordered classes equal those of scikit-learn."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from runs import rows
from runs import tiny
from runs import tiny_lit
from sklearn import metrics

from vit_jax import train
from vit_jax.configs import labels
from vit_jax.configs import unused
from vit_jax.configs import validate
from vit_jax.data import class_counts
from vit_jax.data import sources
from vit_jax.evaluation import multilabel
from vit_jax.evaluation import regression
from vit_jax.evaluation import scores
from vit_jax.models import losses
from vit_jax.runtime import errors
from vit_jax.training import state as state_lib


def predictions(labels, best):
  labels, best = np.array(labels), np.array(best)
  ones = np.ones(len(labels))
  return scores.Predictions(
    np.arange(len(labels)), labels, best[:, None], ones, ones
  )


@pytest.mark.parametrize('classes', [2, 5, 300])
def test_scores_equal_those_of_scikit_learn(classes):
  rng = np.random.default_rng(classes)
  # The last classes are rare, and the first one is never predicted.
  labels = np.minimum(rng.geometric(0.3, 400) - 1, classes - 1)
  best = np.clip(labels + rng.integers(-1, 2, 400), 1, classes - 1)
  found = scores.summary(predictions(labels, best))
  want = {
    scores.BALANCED: metrics.balanced_accuracy_score(labels, best),
    scores.F1: metrics.f1_score(labels, best, average='macro'),
    scores.KAPPA: metrics.cohen_kappa_score(
      labels, best, labels=range(classes), weights='quadratic'
    ),
  }
  assert {k: found[k] for k in want} == pytest.approx(want, abs=1e-12)


def test_kappa_of_one_class_that_is_always_right_is_1():
  assert scores.summary(predictions([0, 0], [0, 0]))[scores.KAPPA] == 1.0


def shares(seed, batch=6, classes=4):
  logits = jax.random.normal(jax.random.key(seed), (batch, classes)) * 3
  targets = jax.nn.softmax(jax.random.normal(jax.random.key(1), logits.shape))
  return logits, targets


@pytest.mark.parametrize('name', ['softmax', 'sigmoid'])
def test_plain_weights_and_gamma_change_nothing(name):
  logits, targets = shares(0)
  plain = losses.LOSSES[name](logits, targets, 0.1)
  weighted = losses.LOSSES[name](logits, targets, 0.1, jnp.ones(4), 0.0)
  np.testing.assert_allclose(plain, weighted, rtol=1e-5)
  tiny_gamma = losses.LOSSES[name](logits, targets, 0.1, None, 1e-7)
  np.testing.assert_allclose(plain, tiny_gamma, rtol=1e-4)


def test_weights_multiply_the_terms_of_their_class():
  logits, weights = shares(0)[0], jnp.array([1.0, 2.0, 0.5, 7.0])
  labels = jnp.array([0, 1, 2, 3, 3, 0])
  plain = losses.LOSSES['softmax'](logits, labels)
  found = losses.LOSSES['softmax'](logits, labels, 0.0, weights)
  np.testing.assert_allclose(found, plain * weights[labels], rtol=1e-5)
  found = losses.LOSSES['sigmoid'](logits, labels, 0.0, weights)
  terms = optax.sigmoid_binary_cross_entropy(logits, jax.nn.one_hot(labels, 4))
  np.testing.assert_allclose(found, (terms * weights).sum(1), rtol=1e-5)


@pytest.mark.parametrize('gamma', [0.5, 2.0])
def test_focal_loss_is_that_of_the_paper(gamma):
  logits, _ = shares(3)
  labels = jnp.array([0, 1, 2, 3, 3, 0])
  p = jax.nn.softmax(logits)[jnp.arange(6), labels]
  found = losses.LOSSES['softmax'](logits, labels, 0.0, None, gamma)
  np.testing.assert_allclose(found, -((1 - p) ** gamma) * jnp.log(p), rtol=1e-4)
  targets = jax.nn.one_hot(labels, 4)
  found = losses.LOSSES['sigmoid'](logits, labels, 0.0, None, gamma)
  want = optax.losses.sigmoid_focal_loss(logits, targets, gamma=gamma).sum(1)
  np.testing.assert_allclose(found, want, rtol=1e-4)


@pytest.mark.parametrize('name', ['softmax', 'sigmoid'])
def test_gradients_are_finite_where_the_model_is_sure(name):
  loss = lambda x: losses.LOSSES[name](x, jnp.array([0]), 0.0, None, 0.5).sum()
  for logit in (-100.0, 100.0):
    grads = jax.grad(loss)(jnp.array([[logit, 0.0]]))
    assert jnp.isfinite(grads).all()


def source(numbers):
  labels = np.repeat(np.arange(len(numbers)), numbers)
  images = np.zeros((len(labels), 4, 4, 1), np.uint8)
  return sources.ArraySource(images, labels, list('abc'))


def test_balanced_weights_give_each_class_the_same_sum():
  weights = class_counts.weights('balanced', source([2, 3, 5]))
  np.testing.assert_allclose(weights * [2, 3, 5], np.full(3, 10 / 3), rtol=1e-6)
  assert class_counts.weights('', source([2, 3, 5])) is None
  given = class_counts.weights('1,.5,20', source([2, 3, 5]))
  assert given.tolist() == [1, 0.5, 20]
  with pytest.raises(errors.UserError, match='no images to train on of b'):
    class_counts.weights('balanced', source([2, 0, 5]))
  with pytest.raises(errors.UserError, match='has 2 numbers, but there are 3'):
    class_counts.weights('1,2', source([2, 3, 5]))


def test_a_class_that_every_image_has_keeps_a_weight():
  labels = np.array([[1, 0], [1, 0], [1, 1], [1, 1]])
  images = np.zeros((4, 4, 4, 1), np.uint8)
  several = sources.ArraySource(images, labels, ['always', 'half'])
  several.task = 'multilabel'
  weights = class_counts.weights('balanced', several)
  np.testing.assert_allclose(weights, [0.25, 1.0])


def test_settings_are_checked(image_folder, captions):
  config = tiny(image_folder)
  for wrong in ('1,,2', '0,1', '-1,2', 'all'):
    config.class_weights = wrong
    with pytest.raises(errors.UserError, match='config.class_weights is'):
      validate.validate(config)
  config = tiny_lit(captions)
  config.best_metric = 'f1_test'
  with pytest.raises(errors.UserError, match='captions have no classes'):
    validate.validate(config)
  with pytest.raises(errors.UserError, match='captions have no classes'):
    unused.refuse(config, {'focal_gamma': 2.0})


def test_best_metrics_are_those_that_are_measured():
  p = scores.summary(predictions([0, 1], [0, 0]))
  numbers = np.float32([[1, 0], [0, 1]])
  found = {
    labels.MULTICLASS: p,
    labels.MULTILABEL: multilabel.summary(numbers, numbers, [0.5, 0.5]),
    labels.REGRESSION: regression.summary(numbers, numbers),
  }
  assert found.keys() == set(labels.TASKS)
  for task, measured in found.items():
    assert set(labels.METRICS[task]) - {scores.LOSS} <= set(measured)
  assert labels.ERRORS[0] == scores.LOSS


@pytest.mark.slow
def test_a_run_is_weighted_and_keeps_its_best_checkpoint(
  image_folder, tmp_path, caplog
):
  for path in sorted((image_folder / 'train' / 'red').glob('*'))[3:]:
    path.unlink()
  config = tiny(image_folder)
  config.class_weights, config.focal_gamma = 'balanced', 2.0
  config.best_metric = 'loss_test'
  config.total_steps, config.eval_every, config.checkpoint_every = 3, 1, 3
  config.keep_checkpoints, config.report = 1, False
  train.train_and_evaluate(config, str(tmp_path))
  assert 'blue 12 + 5, green 12 + 5, red 3 + 5' in caplog.text
  tested = [r for r in rows(tmp_path) if scores.LOSS in r]
  best = min(tested, key=lambda row: row[scores.LOSS])
  saver = state_lib.Saver(tmp_path, 1, 'loss_test', read_only=True)
  assert saver.best() == pytest.approx(-best[scores.LOSS])
  assert {scores.BALANCED, scores.F1, scores.KAPPA} <= tested[0].keys()
