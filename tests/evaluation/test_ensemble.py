"""Averages over models and over mirror images."""

import dataclasses
import json

import cv2
from golden_files import GOLDEN
import numpy as np
from processes import call_command
import pytest

import vit_jax
from vit_jax import checkpoint
from vit_jax.data import wordnet
from vit_jax.evaluation import ensemble
from vit_jax.runtime import errors
from vit_jax.weights import artifact
from vit_jax.weights import record as weights_lib


@pytest.fixture(scope='module')
def models(tmp_path_factory):
  """Two models with the same classes, the second in another order."""
  root = tmp_path_factory.mktemp('models')
  weights = checkpoint.read(GOLDEN / 'vit_token.npz')
  names = list(weights.class_names)
  params = dict(weights.params)
  head = {k: v[..., ::-1] + 0.5 for k, v in params['head'].items()}
  params['head'] = {**head, 'kernel': 1.5 * head['kernel']}
  other = dataclasses.replace(weights, params=params, class_names=names[::-1])
  artifact.save(root / 'a', weights)
  artifact.save(root / 'b', other)
  return root


def probabilities(model, image):
  [(_, p)] = model.probabilities(image)
  return dict(zip(model.labels, p.tolist(), strict=True))


@pytest.fixture
def image():
  return np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)


def test_models_are_averaged_by_class(models, image):
  both = [vit_jax.load(models / name) for name in 'ab']
  one, other = (probabilities(model, image) for model in both)
  found = probabilities(ensemble.Ensemble(both), image)
  assert one != other
  want = {name: (one[name] + other[name]) / 2 for name in one}
  assert found == pytest.approx(want, rel=1e-6)


def test_numbers_of_different_units_have_no_mean():
  both = [Skipping(), Skipping()]
  for model, unit in zip(both, ('cm', 'm'), strict=True):
    changes = {'task': 'regression', 'units': [unit, 's']}
    model.weights = dataclasses.replace(model.weights, **changes)
  with pytest.raises(
    errors.UserError, match=r'in a \[cm\], b \[s\], .* a \[m\]'
  ):
    ensemble.Ensemble(both)


class Skipping:
  """A model whose row of an image is the image's index, and which skips some."""

  def __init__(self, *skipped):
    self.weights = weights_lib.Weights(
      params={}, model={}, class_names=['a', 'b']
    )
    self.skipped = {f'{i}.jpg': 'too small' for i in skipped}

  def probabilities(self, images):
    for i in range(images):
      if f'{i}.jpg' not in self.skipped:
        yield i, np.float32([i, -i])


def test_words_and_ids_of_imagenet_are_the_same_classes():
  words = wordnet.names('tiny_imagenet')
  both = [Skipping(), Skipping()]
  for model, names in zip(both, (words, wordnet.ids(words)[::-1]), strict=True):
    model.weights = dataclasses.replace(model.weights, class_names=names)
    model.probabilities = lambda _: iter([(0, np.arange(200))])
  [(_, row)] = ensemble.Ensemble(both).probabilities(1)
  assert row.tolist() == [199 / 2] * 200


@pytest.mark.parametrize(
  'skipped', [[(), ()], [(1,), (3,)], [(0, 4), ()], [(), (4,), (0, 1)]]
)
def test_only_images_that_all_models_read_are_averaged(skipped):
  both = ensemble.Ensemble([Skipping(*some) for some in skipped])
  found = list(both.probabilities(5))
  assert [i for i, _ in found] == sorted(set(range(5)) - set(sum(skipped, ())))
  for i, row in found:
    assert row.tolist() == [i, -i]
  assert set(both.skipped) == {f'{i}.jpg' for i in sum(skipped, ())}


def test_mirrored_images_are_averaged(models, image):
  model = vit_jax.load(models / 'a')
  one, other = (probabilities(model, x) for x in (image, image[:, ::-1]))
  found = probabilities(vit_jax.load(models / 'a', mirror=True), image)
  want = {name: (one[name] + other[name]) / 2 for name in one}
  assert found == pytest.approx(want, abs=2e-3)  # Resizing is not symmetric.
  assert abs(one['class 0'] - other['class 0']) > 0
  flipped = probabilities(
    vit_jax.load(models / 'a', mirror=True), image[:, ::-1]
  )
  assert found == pytest.approx(flipped, abs=2e-3)


def test_commands_take_several_models(models, image, tmp_path):
  cv2.imwrite(str(tmp_path / 'x.png'), image[..., ::-1])
  names = f'--model={models / "a"},{models / "b"}'
  done = call_command('predict', names, '--json', str(tmp_path / 'x.png'))
  rows = json.loads(done.stdout)['predictions']
  found = {row['class']: row['probability'] for row in rows}
  both = [vit_jax.load(models / name) for name in 'ab']
  want = probabilities(ensemble.Ensemble(both), image)
  assert found == pytest.approx({name: want[name] for name in found}, rel=1e-5)
  one = call_command(
    'predict', f'--model={models / "a"}', '--mirror', str(tmp_path / 'x.png')
  )
  assert one.returncode == 0
  done = call_command('predict', f'{names},', str(tmp_path / 'x.png'))
  assert done.returncode == 1
  assert 'has an empty name. Leave out a comma' in done.stderr


def test_models_of_other_classes_are_refused(models):
  first = vit_jax.load(models / 'a')
  other = vit_jax.load('ViT-Mini_8')
  with pytest.raises(errors.UserError, match='only models with equal classes'):
    ensemble.Ensemble([first, other])
