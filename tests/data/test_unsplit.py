"""Folders without splits: stratified, by content, the same whatever the names."""

import dataclasses
import json

import cv2
from made import random_weights
from made import VIT
import numpy as np
from processes import call_command
import pytest
from runs import tiny
import sklearn.datasets

from vit_jax import train
from vit_jax.data import copies
from vit_jax.data import sources
from vit_jax.data import survey
from vit_jax.data import unsplit
from vit_jax.runtime import errors
from vit_jax.weights import artifact
from vit_jax.weights import training_run


def write(path, seed):
  path.parent.mkdir(parents=True, exist_ok=True)
  image = np.random.RandomState(seed).randint(0, 255, (24, 30, 3), np.uint8)
  smooth = cv2.GaussianBlur(image, (0, 0), 3)
  cv2.imwrite(str(path), cv2.normalize(smooth, None, 0, 255, cv2.NORM_MINMAX))


@pytest.fixture
def folder(tmp_path):
  """30 images of cats, 10 of dogs and 7 of mice."""
  root = tmp_path / 'animals'
  for n, (name, count) in enumerate((('cat', 30), ('dog', 10), ('mouse', 7))):
    for i in range(count):
      write(root / name / f'{i}.png', 100 * n + i)
  return root


def contents(root, split):
  source = sources.get_source(str(root), split)
  return [source[i]['image'] for i in range(len(source))]


def counts(root, split):
  return np.bincount(sources.get_source(str(root), split).labels()).tolist()


def test_splits_are_shares_of_every_class(folder):
  assert sources.default_splits(str(folder)) == ('train[:80%]', 'train[80%:]')
  assert counts(folder, 'train[:80%]') == [24, 8, 6]
  assert counts(folder, 'train[80%:]') == [6, 2, 1]
  assert counts(folder, 'train') == [30, 10, 7]
  for start in range(0, 100, 20):
    part = counts(folder, f'train[{start}%:{start + 20}%]')
    assert all(
      abs(n - 0.2 * all_) <= 1
      for n, all_ in zip(part, (30, 10, 7), strict=True)
    )


def test_default_splits_leave_what_was_asked_for(folder, image_folder):
  name = str(folder)
  assert sources.default_splits(name, 'train[:90%]', 'test') == (
    'train[:90%]',
    'train[90%:]',
  )
  own = 'train[:3]', 'train[3:]'
  assert sources.default_splits(name, *own) == own
  assert sources.default_splits(str(image_folder)) == ('train', 'test')
  assert sources.default_splits('digits') == ('train', 'test')
  with pytest.raises(errors.UserError, match=r'train \(47 images\).*90%'):
    sources.get_source(name, 'test')


def test_names_and_other_classes_do_not_move_an_image(folder):
  before = contents(folder, 'train[:80%]')
  cats = sources.get_source(str(folder), 'train[80%:]')
  cats = {cats[i]['image'] for i in range(len(cats)) if cats[i]['label'] == 0}
  for i, path in enumerate(sorted(folder.glob('*/*.png'))):
    path.rename(path.with_name(f'{(i * 7) % 47:03}x.png'))
  assert contents(folder, 'train[:80%]') == before
  for i in range(20):
    write(folder / 'bird' / f'{i}.png', 500 + i)
  source = sources.get_source(str(folder), 'train[80%:]')
  again = {x['image'] for x in source if x['label'] == 1}
  assert len(cats & again) >= len(cats) - 1


def test_equal_files_stay_together(folder):
  for path in sorted((folder / 'cat').glob('*.png')):
    (folder / 'cat' / f'again_{path.name}').write_bytes(path.read_bytes())
  parts = [set(contents(folder, s)) for s in ('train[:80%]', 'train[80%:]')]
  assert len(parts[0] & parts[1]) <= 1
  order = unsplit.stratified('aaaa', [b'1', b'2', b'1', b'3'])
  assert order == [0, 2, 1, 3]


def test_a_changed_file_is_hashed_again(tmp_path):
  path = tmp_path / 'a'
  path.write_bytes(b'1')
  first = unsplit.hashes([str(path)])
  path.write_bytes(b'22')
  assert unsplit.hashes([str(path)]) != first
  assert len(unsplit.hashes([str(tmp_path / 'missing')])[0]) == 16


@pytest.mark.parametrize(
  'info, words, want',
  [
    ({}, (), ('train[80%:]', 9)),
    ({'splits': ['train[:90%]', 'train[90%:]']}, (), ('train[90%:]', 5)),
    ({'splits': ['train[20%:]', 'train[:20%]']}, (), ('train[:20%]', 9)),
    ({'splits': ['train', 'test']}, (), ('train[80%:]', 9)),
    ({'splits': ['train[:90%]', 'train[90%:]']}, ['train'], ('train', 47)),
  ],
)
def test_what_a_run_left_out_is_evaluated(folder, tmp_path, info, words, want):
  weights = random_weights(VIT, num_classes=3)
  weights = dataclasses.replace(
    weights, class_names=['cat', 'dog', 'mouse'], info=info
  )
  artifact.save(tmp_path / 'model', weights)
  args = (f'--model={tmp_path / "model"}', f'--dataset={folder}')
  result = call_command('evaluate', *args, *(f'--split={x}' for x in words))
  found = json.loads(result.stdout)
  assert (found['split'], found['examples_test']) == want


def test_models_that_left_out_other_images_need_a_split(folder, tmp_path):
  """One of them may have been trained on what the other left out."""
  for name, splits in (
    ('a', ['train[:90%]', 'train[90%:]']),
    ('b', ['train[20%:]', 'train[:20%]']),
  ):
    weights = dataclasses.replace(
      random_weights(VIT, num_classes=3),
      class_names=['cat', 'dog', 'mouse'],
      info={'splits': splits},
    )
    artifact.save(tmp_path / name, weights)
  names = f'--model={tmp_path / "a"},{tmp_path / "b"}'
  result = call_command('evaluate', names, f'--dataset={folder}')
  assert result.returncode == 1
  assert 'trained on train[:90%] and train[20%:], but' in result.stderr
  result = call_command(
    'evaluate', names, f'--dataset={folder}', '--split=train[90%:95%]'
  )
  assert result.returncode == 0, result.stderr


@pytest.mark.slow
def test_a_run_says_how_it_was_split_and_finds_copies(folder, tmp_path, caplog):
  source = sources.get_source(str(folder), 'train[80%:]')
  taken = cv2.imread(source[0]['name'])
  label = source.class_names[source[0]['label']]
  twice = cv2.resize(taken, None, fx=2, fy=2)
  for i in range(3):  # One of them at least is trained on.
    cv2.imwrite(str(folder / label / f'copy{i}.jpg'), twice[i:])
  config = tiny(folder)
  config.total_steps = config.eval_every = 1
  config.report = False
  workdir = tmp_path / 'run'
  train.train_and_evaluate(config, str(workdir))
  text = caplog.text
  assert 'to train on (train[:80%])' in text
  assert "for it by the content of each class's images" in text
  assert 'Images a class, to train on + to test: cat 2' in text
  assert 'copies of training images' in text
  saved = json.loads((workdir / 'config.json').read_text())
  assert saved['pp']['test'] == 'train[80%:]'
  splits = {'dataset': str(folder), 'splits': ['train[:80%]', 'train[80%:]']}
  [step] = (workdir / 'checkpoints').glob('[0-9]*')
  for weights in (
    artifact.load(workdir / 'artifact'),
    training_run.read(step),
  ):
    assert weights.info.items() >= splits.items()
  data = json.loads((workdir / 'dataset.json').read_text())
  assert data['config.pp.test']['copies'] >= 1
  assert sum(data['config.pp.train']['classes'].values()) == 40
  config.total_steps = 2
  train.train_and_evaluate(
    config, str(workdir)
  )  # Resumes: nothing has changed.
  assert json.loads((workdir / 'dataset.json').read_text()) == data


def test_copies_are_found_and_other_images_are_not(folder):
  looks = copies.look(sources.get_source(str(folder), 'train'))
  assert not len(copies.within(looks))
  path = folder / 'dog' / '0.png'
  image = cv2.resize(cv2.imread(str(path)), None, fx=2, fy=2)
  cv2.imwrite(str(path), image)
  for name, copy in {
    'half': cv2.resize(
      image, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA
    ),
    'bright': cv2.add(image, 2),
  }.items():
    cv2.imwrite(str(path.with_name(f'{name}.jpg')), copy)
  cv2.imwrite(str(path.with_name('mirrored.png')), image[:, ::-1])
  found = survey.of_dataset(str(folder))
  parts = [found, *found['splits'].values()]
  assert sum(part['copies']['images'] for part in parts) == 2
  pairs = [pair for part in parts for pair in part['copies']['pairs']]
  assert not any('mirrored' in name for pair in pairs for name in pair)


def drawn(colour, radius):
  image = np.full((64, 64, 3), 255, np.uint8)
  return cv2.circle(image, (30, 34), radius, colour, -1)


def test_small_things_of_other_shapes_or_colours_are_not_copies():
  red, green = (0, 0, 255), (0, 128, 0)
  images = [drawn(red, 6), drawn(green, 6), drawn(red, 11), drawn(red, 6)]
  for text in ('10', '11', '71'):
    page = np.full((64, 64, 3), 255, np.uint8)
    cv2.putText(
      page, text, (14, 40), cv2.FONT_HERSHEY_SIMPLEX, 0.9, (0, 0, 0), 2
    )
    images.append(page)
  images += [np.full((20, 20, 3), level, np.uint8) for level in (9, 10, 9)]
  looks = copies.of_thumbnails([copies.thumbnail(x) for x in images])
  assert copies.within(looks).tolist() == [[0, 3], [7, 9]]
  assert copies.between(looks, looks)[:, 1].tolist() == list(range(10))


def test_small_copies_and_those_in_grey_are_found():
  photos = sklearn.datasets.load_sample_images().images
  small = cv2.resize(
    photos[1][:400, :400], (64, 64), interpolation=cv2.INTER_AREA
  )
  bad = cv2.imdecode(
    cv2.imencode('.jpg', small, [cv2.IMWRITE_JPEG_QUALITY, 40])[1], 1
  )
  grey = small.mean(-1, keepdims=True).astype(np.uint8)
  half = cv2.resize(small, (32, 32), interpolation=cv2.INTER_AREA)
  images = [small, bad, grey, half, photos[0]]
  looks = copies.of_thumbnails([copies.thumbnail(x) for x in images])
  assert copies.within(looks).tolist() == [[0, 1], [0, 2], [0, 3]]


def test_each_copy_counts_once_however_many_images_are_equal():
  looks = copies.of_thumbnails([np.full((16, 16, 3), 7, np.uint8)] * 700)
  first = [[0, i] for i in range(1, 700)]
  assert copies.within(looks).tolist() == first


def test_survey_counts_sizes_and_names_broken_files(folder):
  (folder / 'dog' / 'broken.jpg').write_bytes(b'\xff\xd8')
  (folder / 'dog' / 'x.jp2').write_bytes(b'')
  grey = np.full((60, 24), 255, np.uint8)
  cv2.imwrite(str(folder / 'cat' / 'grey.png'), grey)
  found = survey.of_dataset(str(folder))
  train_part, test_part = found['splits']['train'], found['splits']['test']
  assert train_part['images'] + test_part['images'] == 49
  parts = (train_part, test_part)
  assert [x['name'] for p in parts for x in p['broken']] == [
    str(folder / 'dog' / 'broken.jpg')
  ]
  assert sum(p['modes'].get('L', 0) for p in parts) == 1
  assert train_part['unread'] == {'.jp2': 1}
  assert train_part['widths'] == [24, 30, 30] or test_part['widths'][0] == 24
  rows = sources.get_source(str(folder), 'train[:80%]')
  from vit_jax.data import decoding

  pixels = [
    decoding.decode(x['image']) / 255 for x in rows if len(x['image']) > 2
  ]
  mean = np.mean([x.mean((0, 1)) for x in pixels], axis=0)
  square = np.mean([(x**2).mean((0, 1)) for x in pixels], axis=0)
  np.testing.assert_allclose(train_part['mean'], mean, atol=1e-4)
  np.testing.assert_allclose(
    train_part['std'], np.sqrt(square - mean**2), atol=1e-4
  )
