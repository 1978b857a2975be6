"""Shards of WebDataset: the same images as in a folder, in any order; mistakes."""

import io
import json
import pickle
import tarfile

import cv2
import numpy as np
import pytest
from runs import assert_resumes
from runs import tiny

from vit_jax.configs import labels
from vit_jax.data import datasets
from vit_jax.data import sources
from vit_jax.data.rows import shard_index
from vit_jax.data.rows import table_files
from vit_jax.runtime import errors

NAMES = ('blue', 'green', 'red')


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))


def image(i):
  pixels = np.random.RandomState(i).randint(0, 80, (20, 24, 3), np.uint8)
  pixels[..., i % 3] += 120
  return cv2.imencode('.png', pixels)[1].tobytes()


def write(path, files):
  """Writes an archive of {name: bytes}."""
  with tarfile.open(path, 'w') as archive:
    for name, content in files.items():
      info = tarfile.TarInfo(name)
      info.size = len(content)
      archive.addfile(info, io.BytesIO(content))
  return path


def example(i, **fields):
  fields = fields or {'cls': NAMES[i % 3]}
  made = {f'{i:04}.png': image(i)}
  for suffix, value in fields.items():
    text = json.dumps(value) if suffix == 'json' else value
    made[f'{i:04}.{suffix}'] = text.encode()
  return made


def shard(path, numbers, make=example):
  return write(path, {k: v for i in numbers for k, v in make(i).items()})


@pytest.fixture
def pattern(tmp_path):
  """Two shards of 12 training images, one of 6 test images."""
  shard(tmp_path / 'train-00.tar', range(6))
  shard(tmp_path / 'train-01.tar', range(6, 12))
  shard(tmp_path / 'test-00.tar', range(12, 18))
  return f'{tmp_path}/{{train-{{00..01}},test-00}}.tar'


def message(dataset, split='train', **columns):
  with pytest.raises(errors.UserError) as e:
    sources.get_source(dataset, split, columns=table_files.Columns(**columns))
  assert '\n' not in str(e.value)
  return str(e.value)


def test_patterns_name_shards(tmp_path):
  for name in ('a-08.tar', 'a-09.tar', 'a-10.tar', 'b.tar'):
    shard(tmp_path / name, [0])

  def names(pattern):
    found = shard_index.find(f'{tmp_path}/{pattern}')
    return [path.rpartition('/')[2] for path in found]

  assert names('a-{08..10}.tar') == ['a-08.tar', 'a-09.tar', 'a-10.tar']
  assert names('{b,a-08}.tar') == ['b.tar', 'a-08.tar']
  assert names('*.tar') == ['a-08.tar', 'a-09.tar', 'a-10.tar', 'b.tar']
  with pytest.raises(errors.UserError, match=r'there is no .*a-11\.tar'):
    names('a-{09..11}.tar')


def test_every_image_has_its_label(pattern):
  pattern = pattern.replace('train-{00..01}', 'train-00,train-01')
  for split, numbers in (('train', range(12)), ('test', range(12, 18))):
    source = sources.get_source(pattern, split)
    source = pickle.loads(pickle.dumps(source))  # As for worker processes.
    assert source.class_names == list(NAMES)
    found = [source[i] for i in range(len(source))]
    want = {image(i): i % 3 for i in numbers}
    assert {x['image']: x['label'] for x in found} == want
    assert source.labels().tolist() == [x['label'] for x in found]
    assert all('.tar, 00' in x['name'] for x in found)


def test_the_picture_of_an_example_is_not_its_depth_or_mask(tmp_path):
  others = {'depth.png': image(1), 'npy': b'', 'cls': b'x', 'seg.jpg': b''}
  for name, members in (
    ('a', {**others, 'png': image(0)}),
    ('b', {'png': image(0), **others}),
  ):
    members = {f'0.{k}': v for k, v in members.items()}
    path = write(tmp_path / f'{name}.tar', members)
    assert sources.get_source(str(path), 'train')[0]['image'] == image(0)
    other = table_files.Columns(image='depth.png')
    source = sources.get_source(str(path), 'train', columns=other)
    assert source[0]['image'] == image(1)
  twice = write(tmp_path / 'c.tar', {'7.png': b'', '7.jpg': b'', '7.cls': b'x'})
  text = message(str(twice))
  assert '7 has several images: jpg, png. Set config.columns.image=jpg' in text


@pytest.mark.parametrize(
  'name, split',
  [
    ('testing-0', 'test'),
    ('vals-0', 'test'),
    ('test-from-train-0', 'test'),
    ('crash-test-0', 'train'),
    ('imagenet-dev-0', 'train'),
    ('tests_0', 'test'),
    ('val0', 'test'),
    ('Training-0', 'train'),
    ('testament-0', 'train'),
    ('valley-0', 'train'),
  ],
)
def test_names_of_shards_tell_the_split(name, split, tmp_path):
  shard(tmp_path / f'{name}.tar', range(3))
  shard(tmp_path / 'x.tar', range(3, 6))
  found = sources.get_source(f'{tmp_path}/*.tar', 'train')
  assert len(found) == {'test': 3, 'train': 6}[split]


def test_words_inside_of_names_count_where_one_of_them_is_train(tmp_path):
  shard(tmp_path / 'imagenet1k-train-0000.tar', range(3))
  shard(tmp_path / 'imagenet1k-validation-00.tar', range(3, 5))
  for split, count in (('train', 3), ('test', 2), ('val', 2)):
    assert len(sources.get_source(f'{tmp_path}/*.tar', split)) == count


def test_hidden_files_of_shards_are_left_out(tmp_path):
  """Archives of macOS have `._x.png` beside `x.png`."""
  members = {
    './0.png': image(0),
    './0.cls': b'x',
    './._0.png': b'',
    '.a/1.png': b'',
  }
  path = write(tmp_path / 'x.tar', members)
  source = sources.get_source(str(path), 'train')
  assert [source[i]['image'] for i in range(len(source))] == [image(0)]


def test_names_need_not_be_utf_8(tmp_path):
  path = tmp_path / 'x.tar'
  with tarfile.open(path, 'w', encoding='latin-1') as archive:
    for name, content in (('café.png', image(0)), ('café.cls', b'x')):
      info = tarfile.TarInfo(name)
      info.size = len(content)
      archive.addfile(info, io.BytesIO(content))
  for _ in range(2):  # The second time from the cache.
    assert sources.get_source(str(path), 'train')[0]['image'] == image(0)


def test_order_and_names_of_shards_change_nothing(tmp_path):
  for folder, cuts in (('a', (0, 4, 12)), ('b', (0, 9, 12))):
    (tmp_path / folder).mkdir()
    for n in range(2):
      shard(tmp_path / folder / f'{n}.tar', range(cuts[n], cuts[n + 1]))
  orders = [
    [
      x['image']
      for x in (lambda s: [s[i] for i in range(len(s))])(
        sources.get_source(f'{tmp_path}/{folder}/*.tar', 'train[:75%]')
      )
    ]
    for folder in 'ab'
  ]
  assert len(orders[0]) == 9
  assert set(orders[0]) == set(orders[1])


def test_shards_without_a_test_split_are_divided(tmp_path):
  dataset = str(shard(tmp_path / 'x.tar', range(15)))
  train_split, test_split = sources.default_splits(dataset)
  first, last = (
    sources.get_source(dataset, s) for s in (train_split, test_split)
  )
  assert (len(first), len(last)) == (12, 3)
  assert sorted(last.labels().tolist()) == [0, 1, 2]
  assert set(first.names()).isdisjoint(last.names())
  assert first.split_by


def test_other_labels(tmp_path):
  several = shard(
    tmp_path / 'several.tar',
    range(3),
    lambda i: example(i, json={'labels': list(NAMES[:i]), 'other': [1]}),
  )
  source = sources.get_source(str(several), 'train')
  assert sources.task_of(source) == labels.MULTILABEL
  assert sorted(source.labels().sum(1).tolist()) == [0, 1, 2]
  numbers = shard(
    tmp_path / 'numbers.tar', range(3), lambda i: example(i, target=f'{i}.5')
  )
  source = sources.get_source(str(numbers), 'train')
  assert sorted(source.labels().ravel().tolist()) == [0.5, 1.5, 2.5]


def test_mistakes_give_one_line(tmp_path):
  good = shard(tmp_path / 'good.tar', range(3))
  data = good.read_bytes()
  cut = tmp_path / 'cut.tar'
  for end in (len(data) // 2, 1536 + 512):
    cut.write_bytes(data[:end])
    assert f'{cut} cannot be read' in message(str(cut))
  other = tmp_path / 'other.tar'
  other.write_bytes(b'no archive')
  assert f'{other} cannot be read' in message(str(other))
  empty = write(tmp_path / 'empty.tar', {'a.txt': b'x'})
  assert 'There are no images in' in message(str(empty))
  bare = write(tmp_path / 'bare.tar', {'a.png': image(0)})
  assert "no column 'label'" in message(str(bare))
  mixed = write(tmp_path / 'mixed.tar', {**example(0), 'b.png': image(1)})
  assert 'mixed.tar, b.png has no label: it is missing' in message(str(mixed))
  twice = tmp_path / 'twice.tar'
  with tarfile.open(twice, 'w') as archive:
    for _ in range(2):
      archive.add(tmp_path / 'good.tar', 'a.png')
  assert f'{twice} has a.png twice' in message(str(twice))
  broken = write(tmp_path / 'j.tar', {'a.png': image(0), 'a.json': b'{'})
  assert 'a.json is not an object in JSON' in message(str(broken))


def test_places_are_kept_until_the_archive_changes(tmp_path, monkeypatch):
  path = str(shard(tmp_path / 'x.tar', range(3)))
  names = shard_index.read(path).names
  with monkeypatch.context() as patch:
    patch.setattr(shard_index, '_scan', None)
    assert shard_index.read(path).names == names
  shard(tmp_path / 'x.tar', range(4))
  assert len(shard_index.read(path).names) == 8


@pytest.mark.slow
def test_runs_on_shards_resume_and_repeat(pattern, tmp_path):
  config = tiny(pattern)
  config.total_steps = config.checkpoint_every = config.eval_every = 4
  config.num_workers = 1
  assert len(datasets.open_splits(datasets.with_data(config)).test) == 6
  assert_resumes(config, tmp_path)
