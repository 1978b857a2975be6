"""The benchmarks of the loader run, count what they send, and read the same images."""

import json

import cv2
import numpy as np
from processes import run
import pytest

from benchmarks import sources as forms
from vit_jax.data import sources

MODULE = 'benchmarks.input_pipeline'
FLAGS = ('--seconds=0.01', '--turns=1', '--batch=8')


def rows_of(*args, path):
  process = run(MODULE, *args, *FLAGS, f'--json={path}')
  assert process.returncode == 0, process.stderr
  assert process.stdout.count('| vit_jax') == process.stdout.count('\n') - 3
  return json.loads(path.read_text())['rows']


@pytest.mark.slow
def test_host_bytes_of_photographs(image_folder, tmp_path):
  train, evaluation = rows_of(
    f'--folder={image_folder}',
    '--mode=train,eval',
    '--size=16',
    path=tmp_path / 'numbers.json',
  )
  assert (train['mode'], train['dtype']) == ('train', 'uint8')
  assert train['bytes_per_image'] == 16 * 16 * 3
  assert (evaluation['mode'], evaluation['dtype']) == ('eval', 'uint16')
  assert evaluation['bytes_per_image'] == 2 * 16 * 16 * 3
  assert train['images_s'] > 0


@pytest.mark.slow
def test_small_images_are_measured_raw_too(tmp_path):
  root = tmp_path / 'small'
  for split in ('train', 'test'):
    for label, name in enumerate('ab'):
      (root / split / name).mkdir(parents=True)
      for i in range(6):
        image = np.full((8, 8, 3), 90 * label + i, np.uint8)
        cv2.imwrite(str(root / split / name / f'{i}.png'), image)
  host, raw = rows_of(
    f'--folder={root}', '--size=32', '--raw', path=tmp_path / 'numbers.json'
  )
  assert host['bytes_per_image'] == 32 * 32 * 3
  assert raw['bytes_per_image'] == 8 * 8 * 3
  assert raw['library'] == 'vit_jax raw'


@pytest.mark.slow
def test_missing_peer_is_an_error(image_folder):
  process = run(
    MODULE,
    f'--folder={image_folder}',
    '--against=tfdata',
    '--tf_python=false',  # Any program that fails.
    *FLAGS,
  )
  assert process.returncode != 0
  assert 'tfdata.py failed' in process.stdout + process.stderr


def test_copies_of_a_folder_have_its_images(image_folder, tmp_path):
  made = forms.copies(str(image_folder), tmp_path / 'copies')
  assert len(made) == 5
  held = []
  for dataset in made.values():
    for split in ('train', 'test'):
      source = sources.get_source(dataset, split)
      examples = [source[i] for i in range(len(source))]
      held.append(
        {(x['image'], source.class_names[x['label']]) for x in examples}
      )
  trains, tests = held[::2], held[1::2]
  assert len(trains[0]) == 36
  assert all(train == trains[0] for train in trains)
  assert all(test == tests[0] for test in tests)
