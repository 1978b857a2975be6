"""Arrays of images and labels in .npz files, as notebooks have them."""

import pickle
import re

from golden_files import REPOSITORY
import numpy as np
from pictures import picture
import pytest
from runs import assert_resumes
from runs import tiny

from vit_jax.data import sources
from vit_jax.data import stacks
from vit_jax.runtime import errors
from vit_jax.training import resolve

COUNT = 40
IMAGES = np.stack([picture(i, 20, 24) for i in range(COUNT)])
CLASSES = np.arange(COUNT) % 3


def write(path, **arrays):
  np.savez(path, **{'images': IMAGES, 'labels': CLASSES, **arrays})
  return str(path)


def test_slices_are_those_of_the_arrays(tmp_path):
  path = write(tmp_path / 'x.npz')
  parts = sources.default_splits(path)
  assert parts == ('train[:80%]', 'train[80%:]')
  train, test = (sources.get_source(path, part) for part in parts)
  assert (len(train), len(test)) == (32, 8)
  assert train.image_shape == (20, 24, 3)
  assert train.class_names == ['0', '1', '2']
  assert np.bincount(test.labels()).tolist() == [3, 3, 2]
  again = pickle.loads(pickle.dumps(train))
  seen = set()
  for source in (again, test):
    for i in range(len(source)):
      row = int(source[i]['name'].rpartition(' ')[2]) - 1
      np.testing.assert_array_equal(source[i]['image'], IMAGES[row])
      assert source[i]['label'] == CLASSES[row]
      seen.add(row)
  assert len(seen) == COUNT
  order = np.random.default_rng(0).permutation(COUNT)
  write(tmp_path / 'y.npz', images=IMAGES[order], labels=CLASSES[order])
  moved = sources.get_source(str(tmp_path / 'y.npz'), parts[0])
  np.testing.assert_array_equal(moved[5]['image'], train[5]['image'])


@pytest.mark.parametrize(
  'arrays, task, names, first',
  [
    ({'labels': CLASSES[:, None]}, 'multiclass', ['0', '1', '2'], 1),
    ({'class_names': ['c', 'a', 'b']}, 'multiclass', ['c', 'a', 'b'], 1),
    ({'labels': np.array(['n', 'm'])[CLASSES % 2]}, 'multiclass', 'mn', 0),
    ({'labels': np.eye(3, dtype=int)[CLASSES]}, 'multilabel', '012', [0, 1, 0]),
    ({'labels': CLASSES / 2}, 'regression', ['target'], [0.5]),
    (
      {'labels': np.eye(2)[CLASSES % 2], 'class_names': ['x', 'y']},
      'regression',
      ['x', 'y'],
      [0, 1],
    ),
  ],
)
def test_labels_decide_the_task(tmp_path, arrays, task, names, first):
  path = write(tmp_path / 'x.npz', **arrays)
  assert sources.task(path) == task
  source = sources.get_source(path, 'train')
  assert source.class_names == list(names)
  for i in range(COUNT):
    if source[i]['name'].endswith('row 2'):
      np.testing.assert_array_equal(source[i]['label'], first)


def test_splits_and_weights(tmp_path):
  split = np.where(np.arange(COUNT) < 30, 'train', 'test')
  path = write(tmp_path / 'x.npz', split=split, weight=np.arange(COUNT))
  train = sources.get_source(path, 'train')
  assert (len(train), train.weights.sum()) == (30, sum(range(30)))
  parts = {
    f'{name}_{key}': array[part]
    for name, part in (('train', slice(30)), ('test', slice(30, None)))
    for key, array in (('images', IMAGES), ('labels', CLASSES[:, None]))
  }
  np.savez(tmp_path / 'medical.npz', **parts)  # As MedMNIST has them.
  same = sources.get_source(str(tmp_path / 'medical.npz'), 'train')
  np.testing.assert_array_equal(same.labels(), train.labels())
  np.testing.assert_array_equal(same[3]['image'], train[3]['image'])


@pytest.mark.parametrize(
  'arrays, match',
  [
    ({'images': IMAGES[:9]}, 'has 9 images, but 40 labels'),
    ({'images': IMAGES[0, 0]}, r'images have the shape \(24, 3\), must be \[N'),
    ({'images': IMAGES / 255}, r'images\[0\]: it is float64 of shape'),
    ({'labels': np.array([{}] * COUNT)}, 'cannot be read: Object arrays'),
    ({'labels': CLASSES[:, None] + [[0, 1]]}, 'must be 0 or 1'),
    ({'class_names': ['a']}, 'labels are from 0 to 2, but class_names has 1'),
    ({'class_names': ['a', 'b', 'a ']}, "class_names has 'a' twice"),
    (
      {
        'labels': np.eye(COUNT, 2),
        'class_names': ['x', 'x'],
      },
      "class_names has 'x' twice",
    ),
    ({'labels': np.array(3)}, 'has 40 images, but 1 labels'),
    ({'labels': np.array([b'caf\xe9'] * COUNT)}, 'labels are no UTF-8'),
    ({'class_names': np.array('a')}, 'but class_names has 1'),
    (
      {'labels': np.eye(3), 'class_names': ['a'], 'images': IMAGES[:3]},
      '1 names, but labels 3',
    ),
  ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, arrays, match):
  path = write(tmp_path / 'x.npz', **arrays)
  with pytest.raises(errors.UserError, match=match):
    sources.get_source(path, 'train')


def test_other_files_are_refused(tmp_path):
  path = tmp_path / 'x.npz'
  np.savez(path, pictures=IMAGES, labels=CLASSES)
  with pytest.raises(
    errors.UserError, match="no array 'images', only pictures"
  ):
    sources.get_source(str(path), 'train')
  write(path)
  path.write_bytes(path.read_bytes()[:3000])
  with pytest.raises(errors.UserError, match='x.npz cannot be read: '):
    sources.get_source(str(path), 'train')
  config = tiny(write(path))
  config.task = 'regression'
  with pytest.raises(
    errors.UserError, match="'regression', but .* 'multiclass"
  ):
    resolve.resolve(config, measure=False)


def test_channels_first_are_refused(tmp_path):
  images = np.zeros((4, 3, 16, 20), np.uint8)
  np.savez(tmp_path / 'x.npz', images=images, labels=[0, 1, 0, 1])
  with pytest.raises(errors.UserError, match='channels must come last'):
    sources.get_source(str(tmp_path / 'x.npz'), 'train')


def test_lines_of_spectra_are_images(tmp_path):
  images = np.zeros((4, 1, 64, 20), np.uint8)
  np.savez(
    tmp_path / 'x.npz', images=images, labels=np.eye(2, dtype=int)[[0, 1, 0, 1]]
  )
  source = sources.get_source(str(tmp_path / 'x.npz'), 'train')
  assert source[0]['image'].shape == (1, 64, 20)
  spectra = np.zeros((3, 100, 20), np.uint8)
  assert stacks.as_pixels(spectra, channels=20).shape == (3, 100, 20)
  with pytest.raises(ValueError, match='channels must come last'):
    stacks.as_pixels(spectra)


def test_one_array_is_refused(tmp_path):
  with open(tmp_path / 'x.npz', 'wb') as file:
    np.save(file, np.zeros(3))
  with pytest.raises(errors.UserError, match=r'is one array, of np\.save'):
    sources.get_source(str(tmp_path / 'x.npz'), 'train')


def test_each_split_has_as_many_labels_as_images(tmp_path):
  arrays = {'train_images': 12, 'train_labels': 5, 'test_images': 5}
  arrays = {k: np.zeros((n, 8, 8), np.uint8) for k, n in arrays.items()}
  arrays |= {'train_labels': np.zeros(5, int), 'test_labels': np.zeros(12, int)}
  np.savez(tmp_path / 'x.npz', **arrays)
  with pytest.raises(
    errors.UserError, match='12 train_images, but 5 train_lab'
  ):
    sources.get_source(str(tmp_path / 'x.npz'), 'train')


def test_depths_and_raw_images(tmp_path):
  deep = np.dstack([IMAGES, IMAGES])[..., :2].astype(np.uint16) * 200
  run = resolve.resolve(
    tiny(write(tmp_path / 'x.npz', images=deep)), measure=False
  )
  assert (run.splits.train.is_raw, len(run.config.pp.mean)) == (False, 2)
  run = resolve.resolve(tiny(write(tmp_path / 'y.npz')), measure=False)
  assert run.splits.train.is_raw
  assert run.splits.train[0]['image'].dtype == np.uint8


@pytest.mark.slow
def test_the_example_of_the_page_runs(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  text = (REPOSITORY / 'docs' / 'data.md').read_text()
  (code,) = re.findall(r'```python\n(.*?)```', text, re.DOTALL)
  names = {'images': IMAGES, 'labels': CLASSES}
  exec(code, names)  # What a reader pastes.
  assert len(names['predictions']) == 4
  config = tiny(tmp_path / 'cells.npz')
  config.checkpoint_every = 2
  assert_resumes(config, tmp_path)
