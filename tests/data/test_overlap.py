"""Splits with images in common, which no command trains on and tests."""

import json

from processes import call_command
import pytest
from runs import tiny
import saved_data

from vit_jax.data import datasets
from vit_jax.data import sources
from vit_jax.data import splits
from vit_jax.runtime import errors


def table(folder, *, split):
  """Writes a table of ten images, which nothing reads."""
  rows = [
    {'image': f'{i}.png', 'label': 'ab'[i % 2], 'split': 'train'}
    for i in range(10)
  ]
  rows = [row if split else row | {'split': None} for row in rows]
  path = folder / 'table.jsonl'
  text = [{k: x for k, x in row.items() if x is not None} for row in rows]
  path.write_text('\n'.join(map(json.dumps, text)))
  return path


@pytest.fixture(
  params=['digits', 'folder', 'unsplit', 'table', 'rows', 'saved']
)
def dataset(request, tmp_path, image_folder):
  """A data set of each kind that can be sliced."""
  if request.param == 'saved':
    saved_data.save(tmp_path / 'saved', [saved_data.rows(range(6))])
  return {
    'digits': 'digits',
    'folder': str(image_folder),
    'unsplit': str(image_folder / 'train'),
    'table': str(table(tmp_path, split=True)),
    'rows': str(table(tmp_path, split=False)),
    'saved': str(tmp_path / 'saved'),
  }[request.param]


def test_slices_of_every_kind_of_data_set_are_compared(dataset):
  def check(*chosen):
    parts = [sources.get_source(dataset, split) for split in chosen]
    names = ('config.pp.train', 'config.pp.test')
    sources.refuse_overlap(dict(zip(names, chosen, strict=True)), parts)

  check('train[:80%]', 'train[80%:]')
  with pytest.raises(errors.UserError) as e:
    check('train[:80%]', 'train[60%:]')
  assert str(e.value).startswith(
    "config.pp.train='train[:80%]' and config.pp.test='train[60%:]' have images in"
  )


@pytest.mark.parametrize(
  ('first', 'second', 'overlaps'),
  [
    ('train', 'train[90%:]', True),
    ('train', 'train', True),
    ('train', 'test', False),
    ('train+test', 'test', True),
    ('train[:2]+train[4:]', 'train[1:3]', True),
    ('train[:2]+train[4:]', 'train[2:4]', False),
    ('train[:99]', 'train[99:]', False),
    ('train[:5]+train[50:50]', 'train[5:]', False),
  ],
)
def test_overlap_is_that_of_the_ranges(first, second, overlaps):
  ranges = [
    splits.parse_split(split, {'train': 100, 'test': 100}, 'x')
    for split in (first, second)
  ]
  assert splits.overlap(*ranges) == overlaps


def config_of(dataset, **pp):
  config = tiny(dataset)
  config.pp.update(pp)
  return datasets.with_data(config)


def test_runs_that_train_and_test_refuse_an_overlap(image_folder):
  config = config_of(image_folder, train='train', test='train[90%:]')
  with pytest.raises(errors.UserError, match='images in common'):
    datasets.open_splits(config)
  for name, value in (
    ('trainer', 'evaluate'),
    ('eval_every', 0),
    ('eval_every_epochs', 0.0),
  ):
    other = config.copy_and_resolve_references()
    other[name] = value
    assert len(datasets.open_splits(other).test) == 4


def test_few_images_of_each_class_are_part_of_the_split(image_folder):
  config = config_of(image_folder, train='train', test='train[90%:]', shots=1)
  with pytest.raises(errors.UserError, match='images in common'):
    datasets.open_splits(config)


@pytest.mark.parametrize(
  'words',
  [
    ('data', 'FOLDER'),
    ('evaluate', '--model=ViT-Mini_8', '--dataset=FOLDER', '--probes=knn'),
  ],
)
def test_commands_refuse_an_overlap_by_their_flags(words, image_folder):
  done = call_command(
    *(word.replace('FOLDER', str(image_folder)) for word in words),
    '--train_split=train[:80%]',
    '--split=train[70%:]',
  )
  assert done.returncode == 1
  assert (
    "--train_split='train[:80%]' and --split='train[70%:]' have images"
    in done.stderr
  )
