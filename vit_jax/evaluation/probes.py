"""How good a representation is: simple classifiers of it, evaluated.

The features are what the head sees. The classifiers, scikit-learn's, are fitted to
those of the training images, prepared as in evaluation, and the weights stay.
"""

from collections.abc import Callable, Iterator
import dataclasses
from typing import Any

import jax
from jax.experimental import multihost_utils
from jaxtyping import Float, Int
import ml_collections
import numpy as np

from vit_jax import models
from vit_jax.configs import arguments
from vit_jax.configs import common
from vit_jax.data import batching
from vit_jax.data import pipeline
from vit_jax.data import subsets
from vit_jax.models import inference
from vit_jax.runtime import errors
from vit_jax.runtime import sharding

Features = Float[np.ndarray, 'N D']
Labels = Int[np.ndarray, ' N']
ProbeFn = Callable[[Any], dict[str, float]]

_NEIGHBOURS, _TEMPERATURE = 20, 0.07  # As in DINO (arXiv:2104.14294).
_RIDGES = tuple(2.0**i for i in range(-4, 17))
_COSTS = (1e-3, 1e-2, 1e-1, 1.0)


def make(
  config: ml_collections.ConfigDict,
  data: batching.Data,
  mesh: jax.sharding.Mesh,
) -> ProbeFn:
  """Returns parameters to the accuracies of `config.evaluators`."""
  names = tuple(config.evaluators)
  if not names:
    return lambda params: {}
  module = models.from_config(arguments.of_model(config), num_classes=None)

  def features(params: Any, images: jax.Array) -> jax.Array:
    return inference.apply(module, params, data.preprocess.eval(images))

  step_fn = jax.jit(sharding.in_mesh(mesh, features))
  # The training images, read as those of the test split are.
  train = dataclasses.replace(
    data.test, source=data.train.source, skipped=set()
  )

  def read(params: Any, decoded: pipeline.Decoded) -> tuple[Features, Labels]:
    batches = batching.eval_batches(
      dataclasses.replace(data, test=decoded), mesh, config.batch_eval
    )
    return _outputs(step_fn, params, batches)

  def probe(params: Any) -> dict[str, float]:
    # All hosts compute the same: the features of all images are on each.
    test = read(params, data.test)
    everything, accuracies = None, {}
    for name in names:
      if count := shots(name):
        source = subsets.few_shots(train.source, count)
        known = read(params, dataclasses.replace(train, source=source))
      else:
        everything = known = everything or read(params, train)
      accuracies[f'accuracy_{name}'] = fit(name, *known).score(*test)
    return accuracies

  return probe


def shots(name: str) -> int | None:
  """Returns on how many images of each class a probe is fitted; None: all.

  Raises:
    errors.UserError: if there is no such probe.
  """
  match = common.EVALUATOR.fullmatch(name)
  if match is None:
    raise errors.UserError(
      f'There is no probe {name!r}; there are knn, linear, 10shot, 5shot, ...'
    )
  return int(match[1]) if match[1] else None


def fit(name: str, features: Features, labels: Labels) -> Any:
  """Returns a classifier of scikit-learn, fitted.

  Args:
    name: '10shot', any number before: least squares with targets of ±1 and an L2
      penalty (arXiv:2010.11929, Sec. 4.1) that leaving one out chooses; 'knn':
      votes of the 20 nearest by cosine, weighted with exp(cosine / 0.07);
      'linear': multinomial logistic regression, whose L2 penalty is chosen on a
      tenth of the images.
    features: float32 [N, D].
    labels: [N].
  """
  from sklearn import linear_model
  from sklearn import model_selection
  from sklearn import neighbors
  from sklearn import pipeline as steps
  from sklearn import preprocessing

  if name.endswith('shot'):
    scale = preprocessing.StandardScaler()
    model = linear_model.RidgeClassifierCV(alphas=_RIDGES)
  elif name == 'knn':
    # Of vectors of length 1: half of the squared distance is 1 - cosine.
    scale = preprocessing.Normalizer()
    model = neighbors.KNeighborsClassifier(
      min(_NEIGHBOURS, len(labels)),
      weights=lambda distance: np.exp(-(distance**2) / 2 / _TEMPERATURE),
    )
  else:
    scale = preprocessing.StandardScaler()
    model = model_selection.GridSearchCV(
      linear_model.LogisticRegression(max_iter=1000),
      {'C': _COSTS},
      cv=model_selection.ShuffleSplit(1, test_size=0.1, random_state=0),
    )
  return steps.make_pipeline(scale, model).fit(features, labels)


def _outputs(
  step_fn: Callable[[Any, jax.Array], jax.Array],
  params: Any,
  batches: Iterator[dict[str, jax.Array]],
) -> tuple[Features, Labels]:
  """Returns features and labels of all images that can be decoded."""
  features, labels = [], []
  for batch in batches:
    outputs = step_fn(params, batch['image'])
    outputs, label, mask = multihost_utils.process_allgather(
      (outputs, batch['label'], batch['mask']), tiled=True
    )
    features.append(outputs[mask])
    labels.append(label[mask])
  return np.concatenate(features), np.concatenate(labels)
