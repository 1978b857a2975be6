"""Saved folders and Parquet files give images and labels as tables do."""

import shutil

from pyarrow import parquet
import pytest
from runs import assert_resumes
from runs import tiny
from saved_data import CLASS
from saved_data import content
from saved_data import image
from saved_data import message
from saved_data import NAMES
from saved_data import repository
from saved_data import rows
from saved_data import save
from saved_data import save_dict
from saved_data import SPLITS
from saved_data import table

from vit_jax.configs import labels
from vit_jax.data import datasets
from vit_jax.data import sources


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))


@pytest.mark.parametrize('write', [save_dict, repository])
def test_splits_have_their_images_and_classes(write, tmp_path):
  folder = write(tmp_path / 'data', SPLITS)
  assert sources.default_splits(str(folder)) == ('train', 'test')
  for split, numbers in (('train', range(12)), ('test', range(12, 18))):
    want = {image(i): i % 3 for i in numbers}
    assert content(folder, split) == (list(NAMES), want)
  _, half = content(folder, 'train[:50%]')
  assert sorted(half.values()) == [0, 0, 1, 1, 2, 2]
  assert content(folder, 'train[:50%]')[1] == half


@pytest.mark.parametrize(
  'write', [save, lambda folder, parts: repository(folder, {'train': parts})]
)
def test_one_split_is_divided_by_content(write, tmp_path):
  parts = [rows(range(8)), rows(range(8, 15))]
  folder = write(tmp_path / 'a', parts)
  assert sources.default_splits(str(folder)) == ('train[:80%]', 'train[80%:]')
  other = write(tmp_path / 'b', [parts[1], parts[0]])
  first = content(folder, 'train[:80%]')
  assert len(first[1]) == 12
  assert content(other, 'train[:80%]') == first
  assert sources.get_source(str(folder), 'train').split_by


def test_a_parquet_file_names_its_classes(tmp_path):
  path = tmp_path / 'train-00000-of-00001.parquet'
  parquet.write_table(table(rows(range(6))), path)
  assert content(path) == (list(NAMES), {image(i): i % 3 for i in range(6)})


def test_images_are_copied_again_when_a_file_changes(tmp_path):
  path = tmp_path / 'x.parquet'
  for numbers in (range(6), range(3, 9), range(3, 9)):
    parquet.write_table(table(rows(numbers)), path)
    assert content(path)[1].keys() == {image(i) for i in numbers}
    assert len(list((tmp_path / 'cache').rglob('*.arrow'))) == 1


def test_paths_beside_the_files_are_read(tmp_path):
  made = rows(range(6))
  for i, row in enumerate(made):
    (tmp_path / f'{i}.png').write_bytes(row['image']['bytes'])
    if i % 2:
      row['image']['bytes'] = None
  folder = save(tmp_path / 'data', [made])
  for i in range(6):
    (tmp_path / f'{i}.png').rename(folder / f'{i}.png')
  assert content(folder)[1] == {image(i): i % 3 for i in range(6)}


@pytest.mark.parametrize(
  ('names', 'kinds', 'want'),
  [
    (('img', 'label'), {}, labels.MULTICLASS),
    (('image', 'labels'), {}, labels.MULTICLASS),
    (('picture', 'species'), {}, labels.MULTICLASS),
    (
      ('image', 'labels'),
      {'feature': CLASS, '_type': 'List'},
      labels.MULTILABEL,
    ),
    (
      ('image', 'parts'),
      {'feature': CLASS, '_type': 'Sequence'},
      labels.MULTILABEL,
    ),
    (('image', 'parts'), [CLASS], labels.MULTILABEL),
    (('image', 'target'), {'_type': 'Value'}, labels.REGRESSION),
  ],
)
def test_features_tell_the_columns(names, kinds, want, tmp_path):
  several = want == labels.MULTILABEL
  made = [
    {names[0]: x['image'], names[1]: [x['label'], 0] if several else x['label']}
    for x in rows(range(6))
  ]
  features = {
    names[0]: {'_type': 'Image'},
    names[1]: kinds or CLASS,
    'id': {'_type': 'Value'},
  }
  folder = save(tmp_path / 'data', [made], features)
  assert sources.task(str(folder)) == want
  source = sources.get_source(str(folder), 'train')
  assert list(source.class_names) == (
    ['target'] if want == labels.REGRESSION else list(NAMES)
  )
  assert source.names()[0].startswith(f'{folder}, train, row ')


def test_other_columns_of_classes_must_be_named(tmp_path):
  made = [
    {'image': x['image'], 'fine': x['label'], 'coarse': 0}
    for x in rows(range(6))
  ]
  features = {'image': {'_type': 'Image'}, 'fine': CLASS, 'coarse': CLASS}
  folder = save(tmp_path / 'data', [made], features)
  assert (
    "no column 'label' (or 'labels', 'target'), only image, fine, coarse"
    in message(folder)
  )
  assert set(content(folder, label='fine')[1].values()) == {0, 1, 2}
  assert "no column 'kind'" in message(folder, label='kind')
  one = save(tmp_path / 'one', [rows(range(6))])
  assert "no column 'kind'" in message(one, label='kind')
  assert "no column 'photo'" in message(one, image='photo')


@pytest.mark.parametrize('write', [save_dict, repository])
def test_files_with_other_classes_are_refused(write, tmp_path):
  folder = write(tmp_path / 'data', SPLITS)
  other = {**CLASS, 'names': NAMES[::-1]}
  features = {'image': {'_type': 'Image'}, 'label': other}
  changed = write(tmp_path / 'other', SPLITS, features)
  for old in list(folder.rglob('*test*')):
    if old.is_dir():
      shutil.rmtree(old)
    else:
      old.unlink()
    new = changed / old.relative_to(folder)
    (shutil.copytree if new.is_dir() else shutil.copy)(new, old)
  text = message(folder)
  assert 'The column label has the classes ' in text
  assert 'a number would mean two classes' in text


def test_a_split_without_labels_is_left_out(tmp_path):
  hidden = [{**row, 'label': -1} for row in rows(range(12, 15))]
  splits = {
    'train': SPLITS['train'],
    'validation': SPLITS['test'],
    'test': [hidden],
  }
  folder = repository(tmp_path / 'data', splits)
  want = {image(i): i % 3 for i in range(12, 18)}
  assert content(folder, 'test')[1] == want == content(folder, 'validation')[1]


def test_mistakes_give_one_line(tmp_path):
  folder = save(tmp_path / 'a', [rows(range(3))])
  data = folder / 'data-00000-of-00001.arrow'
  content_ = data.read_bytes()
  data.write_bytes(content_[: len(content_) // 2])
  assert f'{data} cannot be read' in message(folder)
  data.unlink()
  assert f'{data} cannot be read' in message(folder)
  (folder / 'state.json').write_text('{}')
  assert 'its state.json names no files' in message(folder)
  wrong = [
    *rows(range(3)),
    {'image': {'bytes': image(3), 'path': None}, 'label': 7},
  ]
  assert (
    'row 4 has the label 7, which is not one of the 3 classes: red'
    in message(save(tmp_path / 'b', [wrong]))
  )
  none = [*rows(range(3)), {'image': None, 'label': 0}]
  assert 'row 4 has no image: it is missing' in message(
    save(tmp_path / 'c', [none])
  )
  (tmp_path / 'd').mkdir()
  (tmp_path / 'd' / 'x.parquet').write_bytes(b'PAR1')
  assert 'x.parquet cannot be read' in message(tmp_path / 'd')


@pytest.mark.slow
def test_runs_resume_and_repeat(tmp_path):
  config = tiny(save_dict(tmp_path / 'data', SPLITS))
  config.total_steps = config.checkpoint_every = config.eval_every = 4
  config.num_workers = 1
  assert len(datasets.open_splits(datasets.with_data(config)).test) == 6
  assert_resumes(config, tmp_path)
