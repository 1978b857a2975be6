"""A few images of each class, and each class as often."""

import math

import numpy as np
from pictures import make_image_folder
import pytest
from run_files import tiny

from vit_jax.configs import resolved
from vit_jax.data import batching
from vit_jax.data import sources
from vit_jax.data import subsets
from vit_jax.runtime import errors
from vit_jax.training import resolve
from vit_jax.training import tasks


def unbalanced():
  labels = np.array([0, 1, 1, 0, 2, 1, 1, 1])
  images = np.arange(8, dtype=np.uint8).reshape(8, 1, 1, 1)
  return sources.ArraySource(images, labels, ['a', 'b', 'c'])


def contents(source):
  return [
    (int(source[i]['image'].squeeze()), source[i]['label'])
    for i in range(len(source))
  ]


def test_few_shots_are_the_first_of_each_class():
  few = subsets.few_shots(unbalanced(), 1)
  assert contents(few) == [(0, 0), (1, 1), (4, 2)]
  assert few.labels().tolist() == [0, 1, 2]
  with pytest.raises(errors.UserError, match=r"shots is 2, .* 'c' has 1 tr"):
    subsets.few_shots(unbalanced(), 2)


def test_balanced_classes_have_equal_counts():
  balanced = subsets.balanced(unbalanced())
  assert np.bincount(balanced.labels()).tolist() == [5, 5, 5]
  assert {x for x, _ in contents(balanced)} == set(range(8))
  few = subsets.few_shots(balanced, 3)
  assert np.bincount(few.labels()).tolist() == [3, 3, 3]
  nothing = subsets.Subset(unbalanced(), np.array([0, 1]))
  with pytest.raises(errors.UserError, match="'c' has 0 training images"):
    subsets.balanced(nothing)


def test_shots_apply_after_the_split(tmp_path):
  folder = make_image_folder(tmp_path / 'images')
  config = tiny.get_config(str(folder)).unlock()
  config.pp.train = 'train[:75%]'
  config.pp.shots = 2
  data = batching.of_config(resolved.with_defaults(config))
  assert np.bincount(data.train.source.labels()).tolist() == [2, 2, 2]
  whole = len(
    batching.of_config(
      resolved.with_defaults(tiny.get_config(str(folder)))
    ).test
  )
  assert len(data.test) == whole
  config.pp.shots = None
  config.pp.balance_classes = True
  labels = batching.of_config(
    resolved.with_defaults(config)
  ).train.source.labels()
  assert len(set(np.bincount(labels))) == 1


@pytest.mark.parametrize(
  'settings, images',
  [
    ({'shots': 2}, 6),
    ({'train': 'train[:10]+train[20:]', 'balance_classes': True}, None),
    ({'shots': 3, 'balance_classes': True}, 9),
    ({}, 36),
  ],
)
def test_an_epoch_is_the_images_that_are_trained_on(
  image_folder, monkeypatch, settings, images
):
  opened, get_source = [], sources.get_source
  monkeypatch.setattr(
    sources,
    'get_source',
    lambda name, split, **how: (
      opened.append(split) or get_source(name, split, **how)
    ),
  )
  config = tiny.get_config(str(image_folder)).unlock()
  config.pp.update(settings)
  config.batch, config.total_epochs, config.eval_every_epochs = 2, 7.0, 1.0
  run = resolve.resolve(config)
  task = tasks.make(run)
  trained_on = len(task.data.train)
  assert images in (None, trained_on)
  assert run.config.total_steps == round(7 * trained_on / 2)
  assert run.config.eval_every == math.ceil(trained_on / 2)
  assert opened == [config.pp.train, 'test']


def test_the_log_says_how_images_were_chosen(image_folder, caplog):
  config = tiny.get_config(str(image_folder)).unlock()
  config.pp.balance_classes = True
  config.pp.train = 'train[:10]'
  with caplog.at_level('INFO', logger='absl'):
    data = batching.of_config(resolved.with_defaults(config))
  each = np.bincount(data.train.source.labels())[0]
  assert len(data.train) == 3 * each > 10
  assert (
    f'{3 * each} images to train on (train[:10], balance_classes=True, out of'
    f' 10), 15 to test'
  ) in caplog.text
  config.pp.shots = 2
  config.pp.train = 'train'
  caplog.clear()
  with caplog.at_level('INFO', logger='absl'):
    batching.of_config(resolved.with_defaults(config))
  assert '(train, shots=2, balance_classes=True, out of 36), ' in caplog.text
