"""Probes are fitted to the inputs of the head, by the documented formulas."""

import jax
import numpy as np
import pytest
from run_files import tiny

from vit_jax import models
from vit_jax.configs import arguments
from vit_jax.configs import validate
from vit_jax.data import sources
from vit_jax.data import subsets
from vit_jax.evaluation import probes
from vit_jax.runtime import errors
from vit_jax.training import resolve
from vit_jax.training import tasks

NAMES = ('2shot', 'knn', 'linear')


def clusters(num, seed, spread=1.0):
  """Returns three clusters that no plane through the origin separates."""
  rng = np.random.default_rng(seed)
  labels = rng.integers(0, 3, num)
  centres = np.array([[5, 0, 0, 9], [5, 4, 0, 9], [5, 0, 4, 9]])
  noise = rng.normal(0, spread, (num, 4))
  return (centres[labels] + noise).astype(np.float32), labels


@pytest.mark.parametrize('name', ['10shot', 'knn', 'linear'])
def test_classifiers_separate_clusters(name):
  model = probes.fit(name, *clusters(200, 0))
  assert model.score(*clusters(500, 1)) > 0.93
  assert model.score(*clusters(500, 1, spread=30.0)) < 0.6


@pytest.mark.parametrize('labels', [[0], [0, 0, 0], [0, 1]])
def test_a_linear_probe_needs_two_classes(labels):
  features = np.arange(len(labels), dtype=np.float32)[:, None]
  with pytest.raises(errors.UserError, match=f'has {len(labels)} images of'):
    probes.fit('linear', features, np.array(labels))


@pytest.mark.parametrize('name', NAMES)
def test_features_of_diverged_parameters_have_no_accuracy(image_folder, name):
  source = sources.get_source(str(image_folder), 'train')

  def read(images):
    labels = images.labels()
    features = np.full((len(labels), 4), np.nan, np.float32)
    return features, labels

  found = probes.accuracies([name], read, source, source)
  assert np.isnan(found[f'accuracy_{name}'])


def test_few_shots_are_least_squares_on_plus_and_minus_one():
  features, labels = clusters(60, 0)
  model = probes.fit('20shot', features, labels)
  x = (features - features.mean(0)) / features.std(0)
  y = np.where(labels[:, None] == np.arange(3), 1, -1)
  penalty = model[-1].alpha_ * np.eye(4)
  weights = np.linalg.solve(x.T @ x + penalty, x.T @ (y - y.mean(0)))
  np.testing.assert_allclose(model[-1].coef_, weights.T, atol=1e-5)


def test_probes_see_each_image_once_where_classes_are_balanced(image_folder):
  whole = sources.get_source(str(image_folder), 'train')
  few = subsets.few_shots(whole, 2)
  uneven = subsets.Subset(whole, np.array([0, 1, 2, *range(6, len(whole))]))
  for source in (whole, few, uneven):
    again = subsets.distinct(subsets.balanced(source))
    assert sorted(again.names()) == sorted(source.names())


def test_neighbours_vote_by_cosine():
  features, labels = clusters(100, 0, spread=4.0)
  new, _ = clusters(50, 1, spread=4.0)
  unit = lambda x: x / np.linalg.norm(x, axis=1, keepdims=True)
  cosine = unit(new) @ unit(features).T
  votes = np.zeros((50, 3))
  for i, row in enumerate(cosine):
    for j in np.argsort(-row)[:20]:
      votes[i, labels[j]] += np.exp(row[j] / 0.07)
  model = probes.fit('knn', features, labels)
  np.testing.assert_array_equal(model.predict(new), votes.argmax(1))


@pytest.fixture(scope='module')
def prepared(tmp_path_factory):
  """(run, task, parameters) of a tiny model."""
  from pictures import make_image_folder

  folder = make_image_folder(tmp_path_factory.mktemp('probes') / 'images')
  config = tiny.get_config(str(folder)).unlock()
  config.evaluators = NAMES
  config.pp.randaugment = (2, 10)  # Of training alone.
  run = resolve.resolve(config)
  task = tasks.make(run)
  return run, task, task.initial_params(None)


@pytest.mark.slow
def test_probes_are_fitted_to_inputs_of_the_head(prepared, monkeypatch):
  run, task, params = prepared
  config, data, mesh = run.config, task.data, run.mesh
  seen, fit = {}, probes.fit

  def spy(name, features, labels):
    seen[name] = features, labels
    return fit(name, features, labels)

  monkeypatch.setattr(probes, 'fit', spy)
  model = models.from_config(arguments.of_model(config), num_classes=3)
  accuracies = probes.make(model, data, mesh, config.batch_eval, NAMES)(params)
  assert set(accuracies) == {f'accuracy_{name}' for name in NAMES}
  assert all(0 <= value <= 1 for value in accuracies.values())
  assert [len(seen[name][0]) for name in NAMES] == [6, *[len(data.train)] * 2]
  np.testing.assert_array_equal(np.bincount(seen['2shot'][1]), [2, 2, 2])

  features, labels = seen['knn']
  images = np.stack(
    [data.eval_transform.map(data.train[i])['image'].make() for i in range(8)]
  )
  logits = model.apply(
    {'params': params}, data.preprocess.eval(images), train=False
  )
  head = params['head']
  np.testing.assert_allclose(
    features[:8] @ head['kernel'] + head['bias'], logits, atol=1e-5
  )
  assert [data.train[i]['label'] for i in range(8)] == labels[:8].tolist()


def test_probes_with_too_few_images_are_refused_before_the_first_step(
  image_folder,
):
  config = tiny.get_config(str(image_folder)).unlock()
  config.evaluators = ('knn', '13shot')
  run = resolve.resolve(config)
  with pytest.raises(
    errors.UserError, match="13shot needs 13 .* 'blue' has 12"
  ):
    tasks.make(run)


@pytest.mark.slow
def test_evaluation_reports_probes(prepared):
  _, task, params = prepared
  metrics = task.eval_fn(jax.device_put(params))
  assert {'accuracy_test', 'accuracy_2shot', 'accuracy_knn'} <= set(metrics)


@pytest.mark.parametrize('name', ['0shot', 'shot', 'svm', '10shots'])
def test_unknown_probes_are_refused(image_folder, name):
  config = tiny.get_config(str(image_folder))
  config.evaluators = ('knn', name)
  with pytest.raises(
    errors.UserError, match=rf"config.evaluators is \('knn', '{name}'\)"
  ):
    validate.validate(config)
