"""How good a representation is: accuracies of simple classifiers of features.

Features are the inputs of the head. The classifiers, scikit-learn's, are fitted to
features of the training images, preprocessed as in evaluation.
"""

from collections.abc import Callable, Iterable, Sequence
import functools
import math
from typing import Any

import flax.linen as nn
import jax
from jaxtyping import Float, Int
import numpy as np

from vit_jax.configs import common
from vit_jax.data import batching
from vit_jax.data import sources
from vit_jax.data import subsets
from vit_jax.evaluation import all_outputs
from vit_jax.models import inference
from vit_jax.runtime import errors

Features = Float[np.ndarray, 'N D']
Labels = Int[np.ndarray, ' N']
Reader = Callable[[sources.LabelledSource], tuple[Features, Labels]]

_NEIGHBOURS, _TEMPERATURE = 20, 0.07  # As in DINO (arXiv:2104.14294).
_RIDGES = tuple(2.0**i for i in range(-4, 17))
_COSTS = (1e-3, 1e-2, 1e-1, 1.0)


def make(
  model: nn.Module,
  data: batching.Data,
  mesh: jax.sharding.Mesh,
  batch_size: int,
  names: Sequence[str],
) -> Callable[[Any], dict[str, float]]:
  """Returns a function from parameters to the accuracies of probes."""
  headless = model.clone(num_classes=None)
  train, test = subsets.distinct(data.train.source), data.test.source
  for name in names:
    _images(name, train)  # Raises now, not at the first evaluation.

  def features(params: Any, images: jax.Array) -> jax.Array:
    return inference.apply(headless, params, images)

  # The training images too are preprocessed as those of the test split.
  read_all = all_outputs.reader(features, data, mesh, batch_size)

  def probe_fn(params: Any) -> dict[str, float]:
    if not names:
      return {}
    # Only labelled sources have classes to probe.
    assert isinstance(train, sources.LabelledSource)
    assert isinstance(test, sources.LabelledSource)
    read = functools.partial(read_all, params)
    return accuracies(names, read, train, test)

  return probe_fn


def of_rows(
  rows: Callable[[Any], Iterable[tuple[int, np.ndarray]]],
  names: Sequence[str],
  train: sources.LabelledSource,
  test: sources.LabelledSource,
) -> dict[str, float]:
  """Returns the accuracies of probes of a loaded model, see `accuracies`.

  `rows`, such as `Predictor.iter_features`, yields the index and the features of
  each decoded image of a source.

  Raises:
    errors.UserError: if there is no such probe, or no image can be decoded.
  """

  def read(source: sources.LabelledSource) -> tuple[Features, Labels]:
    found = list(rows(source))
    if not found:
      raise errors.UserError('None of the images can be decoded.')
    places, features = zip(*found, strict=True)
    return np.stack(features), source.labels()[list(places)]

  return accuracies(names, read, train, test)


def accuracies(
  names: Sequence[str],
  read: Reader,
  train: sources.LabelledSource,
  test: sources.LabelledSource,
) -> dict[str, float]:
  """Returns the accuracy on `test` of each probe, fitted to features of `train`."""
  images = {name: _images(name, train) for name in names}
  known, found, unseen = {}, {}, read(test)
  for name in names:
    count = shots(name)
    if count not in known:
      known[count] = read(images[name])
    both = known[count][0], unseen[0]
    if not all(np.isfinite(features).all() for features in both):
      found[f'accuracy_{name}'] = math.nan  # The parameters diverged.
      continue
    model = fit(name, *known[count])
    found[f'accuracy_{name}'] = float(model.score(*unseen))
  return found


def _images(name: str, train: Any) -> sources.LabelledSource:
  """Returns the images that a probe is fitted to.

  Raises:
    errors.UserError: if there is no such probe, or a class has too few images.
  """
  count = shots(name)
  if count is None:
    return train
  why = f'The probe {name} needs {count} images of each class'
  return subsets.few_shots(train, count, why)


def shots(name: str) -> int | None:
  """Returns how many images of each class a probe is fitted to; None for all.

  Raises:
    errors.UserError: if there is no such probe.
  """
  match = common.EVALUATOR.fullmatch(name)
  if match is None:
    raise errors.UserError(
      f'There is no probe {name!r}; there are knn, linear, 10shot, 5shot, ...'
    )
  return int(match[1]) if match[1] else None


def _check_classes(labels: Labels, parts: Any) -> None:
  kept = next(parts.split(labels))[0] if len(labels) > 1 else [0]
  if len(np.unique(labels[kept])) < 2:
    raise errors.UserError(
      f'The linear probe needs images of two classes beside the tenth that it holds'
      f' out; it has {len(labels)} images of {len(np.unique(labels))}. Give more'
      f' images, or take --probes=knn.'
    )


def fit(name: str, features: Features, labels: Labels) -> Any:
  """Returns a fitted classifier of scikit-learn.

  '10shot', or any number: least squares with targets of ±1 (arXiv:2010.11929,
  Sec. 4.1), its L2 penalty chosen by leave-one-out. 'knn': votes of the 20 nearest
  by cosine, weighted with exp(cosine / 0.07). 'linear': multinomial logistic
  regression, its L2 penalty chosen on a tenth of the images.

  Raises:
    errors.UserError: if the rest of the images have one class.
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
    # Between vectors of length 1, half the squared distance is 1 - cosine.
    scale = preprocessing.Normalizer()
    model = neighbors.KNeighborsClassifier(
      min(_NEIGHBOURS, len(labels)),
      weights=lambda distance: np.exp(-(distance**2) / 2 / _TEMPERATURE),
    )
  else:
    scale = preprocessing.StandardScaler()
    parts = model_selection.ShuffleSplit(1, test_size=0.1, random_state=0)
    _check_classes(labels, parts)
    model = model_selection.GridSearchCV(
      linear_model.LogisticRegression(max_iter=1000), {'C': _COSTS}, cv=parts
    )
  return steps.make_pipeline(scale, model).fit(features, labels)
