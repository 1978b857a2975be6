"""Changes of the input that must change nothing, or the output in a known way."""

import itertools
import os

import numpy as np
from pictures import COLOURS
from pictures import make_image_folder
import pytest
from runs import flat
from runs import tiny

import vit_jax
from vit_jax import train


def train_briefly(folder, workdir, **settings):
  """Trains for four steps on whole images, all of them in each batch."""
  config = tiny(folder).unlock()
  config.pp.update(resize=24, crop=24, flip=False)
  config.model.transformer.dropout_rate = 0.0
  config.update(
    stochastic_depth_rate=0.0,
    batch=36,
    accum_steps=1,
    total_steps=4,
    warmup_steps=1,
    optimizer='sgd',
    optim_dtype='float32',
    base_lr=0.1,
    eval_every=0,
    checkpoint_every=0,
    loggers=(),
  )
  config.update(settings)
  train.train_and_evaluate(config, str(workdir))
  return flat(workdir)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  return make_image_folder(tmp_path_factory.mktemp('relations') / 'images')


@pytest.fixture(scope='module')
def trained(folder, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('trained')
  return train_briefly(folder, workdir), workdir


@pytest.mark.slow
def test_order_of_directory_entries_changes_nothing(
  folder, trained, tmp_path, monkeypatch
):
  scandir = os.scandir
  calls = []

  class Reversed(list):
    def __enter__(self):
      return self

    def __exit__(self, *error):
      pass

  def reversed_scandir(path='.'):
    calls.append(path)
    return Reversed(list(scandir(path))[::-1])

  with monkeypatch.context() as patch:
    patch.setattr(os, 'scandir', reversed_scandir)
    got = train_briefly(folder, tmp_path)
  assert {str(folder / 'train' / name) for name in COLOURS} <= set(
    map(str, calls)
  )
  for name, want in trained[0].items():
    np.testing.assert_array_equal(got[name], want, name)


@pytest.mark.slow
def test_renaming_classes_permutes_the_outputs(folder, trained, tmp_path):
  names = {'blue': 'z', 'green': 'x', 'red': 'y'}  # In another order.
  for split, colour in itertools.product(('train', 'test'), COLOURS):
    place = tmp_path / 'images' / split
    place.mkdir(parents=True, exist_ok=True)
    (place / names[colour]).symlink_to(folder / split / colour)
  train_briefly(tmp_path / 'images', tmp_path / 'run')
  images = sorted(str(path) for path in folder.glob('test/*/*.jpg'))
  renamed = vit_jax.load(tmp_path / 'run' / 'artifact')
  original = vit_jax.load(trained[1] / 'artifact')
  assert original.labels == sorted(COLOURS)
  assert renamed.labels == ['x', 'y', 'z']
  for got, want in zip(
    renamed.predict(images), original.predict(images), strict=True
  ):
    want = {names[label]: probability for label, probability in want}
    assert dict(got) == pytest.approx(want, abs=1e-5)
    assert max(want.values()) > 0.4  # It has learned something.


@pytest.mark.slow
def test_epochs_equal_steps(folder, trained, tmp_path):
  # 36 images: an epoch is one step.
  got = train_briefly(
    folder,
    tmp_path,
    total_steps=None,
    total_epochs=4.0,
    warmup_steps=500,
    warmup_epochs=1.0,
  )
  for name, want in trained[0].items():
    np.testing.assert_array_equal(got[name], want, name)


@pytest.mark.slow
def test_number_of_threads_and_accumulation_change_nothing(
  folder, trained, tmp_path
):
  got = train_briefly(folder, tmp_path, num_threads=1, accum_steps=3)
  for name, want in trained[0].items():
    np.testing.assert_allclose(got[name], want, atol=1e-6, err_msg=name)
