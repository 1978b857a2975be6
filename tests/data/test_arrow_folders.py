"""Repositories of Hugging Face, on disk and on the hub: configurations and splits."""

import functools

import hub_server
import huggingface_hub
import pytest
from saved_data import content
from saved_data import image
from saved_data import message
from saved_data import NAMES
from saved_data import repository
from saved_data import SPLITS

from vit_jax.configs import labels
from vit_jax.data import sources
from vit_jax.data.rows import arrow_folders


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))


@pytest.mark.parametrize(
  ('paths', 'want'),
  [
    (
      [
        'data/train-00000-of-00002.parquet',
        'data/train-00001-of-00002.parquet',
      ],
      {'train': 2},
    ),
    (
      [
        'data/train-00000-of-00001-0a1b2c.parquet',
        'data/dev-00000-of-00001-0.parquet',
      ],
      {'train': 1, 'dev': 1},
    ),
    (['train.parquet', 'my_test.parquet'], {'train': 1, 'test': 1}),
    (
      ['default/train/0000.parquet', 'default/val/0000.parquet'],
      {'train': 1, 'validation': 1},
    ),
    (
      [
        'plain/train-00000-of-00001.parquet',
        'plain/test-00000-of-00001.parquet',
      ],
      {'train': 1, 'test': 1},
    ),
    (['a.parquet', 'b.parquet'], {'train': 2}),
    (
      ['part-00000-of-00002.parquet', 'part-00001-of-00002.parquet'],
      {'train': 2},
    ),
  ],
)
def test_names_of_files_tell_the_splits(paths, want, tmp_path):
  for path in paths:
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).touch()
  assert arrow_folders.is_named(str(tmp_path))
  found = arrow_folders.find(tmp_path)
  assert {split: len(files) for split, files in found.items()} == want


README = """---
configs:
- config_name: small
  data_files:
  - split: train
    path: data/train-00000*
  - split: test
    path: [data/test-*]
- config_name: all
  {default}
  data_files:
  - split: train
    path: data/*
---
"""


def test_a_readme_names_configurations(tmp_path):
  repository(tmp_path, SPLITS)
  readme = tmp_path / 'README.md'
  readme.write_text(README.format(default='default: true'))
  assert {k: len(x) for k, x in arrow_folders.find(tmp_path).items()} == {
    'train': 3
  }
  readme.write_text(README.format(default=''))
  assert 'has the configurations all, small: move the files' in message(
    tmp_path
  )


@pytest.mark.parametrize(
  'configs',
  [
    '5',
    '[5]',
    '[{config_name: a, data_files: 7}]',
    '[{config_name: a, data_files: [{split: 2020, path: 7}]}]',
    '[{config_name: a, data_files: [{split: train, path: /etc/*.parquet}]}]',
    '[{config_name: a, data_files: [{split: train, path: ../*.parquet}]}]',
  ],
)
def test_a_readme_without_files_of_its_folder_is_ignored(configs, tmp_path):
  folder = repository(tmp_path / 'data', SPLITS)
  repository(tmp_path / 'other', SPLITS)
  want = arrow_folders.find(folder)
  (folder / 'README.md').write_text(f'---\nconfigs: {configs}\n---\n')
  assert arrow_folders.find(folder) == want


def test_predictions_beside_images_are_no_table(image_folder):
  (image_folder / 'rows.parquet').touch()
  assert not arrow_folders.is_named(str(image_folder))
  assert sources.task(str(image_folder)) == labels.MULTICLASS


@pytest.fixture
def hub(tmp_path, monkeypatch):
  with hub_server.serve() as handler:
    monkeypatch.setattr(
      huggingface_hub,
      'snapshot_download',
      functools.partial(
        huggingface_hub.snapshot_download,
        endpoint=handler.url,
        cache_dir=tmp_path / 'hub',
      ),
    )
    yield handler.repositories


def contents(folder):
  return {
    path.relative_to(folder).as_posix(): path.read_bytes()
    for path in folder.rglob('*')
    if path.is_file()
  }


def test_the_hub_has_data_sets(hub, tmp_path):
  hub['user/a'] = {'main': contents(repository(tmp_path / 'a', SPLITS))}
  want = {image(i): i % 3 for i in range(12, 18)}
  assert content('hf://datasets/user/a', 'test') == (list(NAMES), want)
  (tmp_path / 'a' / 'README.md').write_text(README.format(default=''))
  hub['user/b'] = {'main': {}, 'v1': contents(tmp_path / 'a')}
  assert len(content('hf://datasets/user/b@v1/small')[1]) == 5
  kept = (tmp_path / 'hub' / 'datasets--user--b').rglob('*.parquet')
  assert sorted(path.name for path in kept) == [  # Not the others.
    'test-00000-of-00001.parquet',
    'train-00000-of-00002.parquet',
  ]
  assert 'has the configurations all, small' in message(
    'hf://datasets/user/b@v1'
  )
  converted = contents(repository(tmp_path / 'c', SPLITS))
  hub['user/c'] = {
    'main': {'train.csv': b'a'},
    'refs/convert/parquet': converted,
  }
  assert len(content('hf://datasets/user/c')[1]) == 12


def test_mistakes_at_the_hub_give_one_line(hub):
  hub['user/d'] = {'main': {'a.txt': b'a'}}
  assert (
    message('hf://datasets/user/d')
    == 'hf://datasets/user/d has no .parquet files.'
  )
  assert 'no such branch, tag or commit' in message('hf://datasets/user/d@v2')
  assert 'hf://datasets/user/none: ' in message('hf://datasets/user/none')
  assert 'must look like hf://datasets/USER/NAME' in message('hf://datasets/')
