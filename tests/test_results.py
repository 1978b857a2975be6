"""A recorded result can be evaluated again."""

import json
import math
import shutil

import cv2
from golden_files import REPOSITORY
import numpy as np
from pictures import make_image_folder
import pytest
from run_files import tiny

from tools import check_result
from tools import record_result
from vit_jax import checkpoint
from vit_jax import train
from vit_jax.runtime import errors

HOW = {'command': 'x', 'hardware': '2 cores', 'hours': 0.1, 'commit': 'abc'}


@pytest.fixture(scope='module')
def recorded(tmp_path_factory):
  """(images, workdir, result folder) of a run with an average."""
  root = tmp_path_factory.mktemp('results')
  folder = make_image_folder(root / 'colours')
  config = tiny.get_config(str(folder))
  config.update({'total_steps': 8, 'eval_every': 4, 'ema_decay': 0.5})
  (root / 'run').mkdir()
  train.train_and_evaluate(config, str(root / 'run'))
  record_result.record(root / 'run', root / 'result', HOW)
  return folder, root / 'run', root / 'result'


@pytest.mark.slow
def test_record_keeps_metrics_and_no_paths(recorded):
  folder, workdir, output = recorded
  result = json.loads((output / 'result.json').read_text())
  assert {name: result[name] for name in HOW} == HOW
  rows = (workdir / 'metrics.jsonl').read_text().splitlines()
  last = json.loads(rows[-1])
  assert result['metrics']['loss_test'] == last['loss_test_ema']
  assert result['metrics']['examples_test'] == 15
  assert (output / 'metrics.jsonl').read_text().splitlines() == rows
  for path in output.rglob('*.json*'):
    assert str(folder.parent) not in path.read_text(), path
  picture = cv2.imread(str(output / 'curve.png'))
  assert picture.shape[1] > 1.5 * picture.shape[0]  # Two panels.
  colours = np.unique(picture.reshape(-1, 3), axis=0)
  assert len(colours) > 50


@pytest.mark.slow
def test_recorded_model_is_float16(recorded):
  _, workdir, output = recorded
  size = (workdir / 'artifact_ema' / 'model.npz').stat().st_size
  assert (output / 'model' / 'model.npz').stat().st_size < 0.75 * size
  small = checkpoint.read(output / 'model').params
  want = checkpoint.read(workdir / 'artifact_ema').params
  kernel = small['head']['kernel']
  assert kernel.dtype == np.float32
  np.testing.assert_allclose(kernel, want['head']['kernel'], rtol=1e-3)
  assert not np.array_equal(kernel, want['head']['kernel'])


@pytest.mark.slow
def test_check_compares_accuracy_and_classes(recorded, tmp_path):
  folder, _, output = recorded
  table = check_result.check(output, str(folder))
  assert '| examples_test | 15 | 15 |' in table
  shutil.copytree(output, tmp_path / 'wrong')
  path = tmp_path / 'wrong' / 'result.json'
  result = json.loads(path.read_text())
  result['metrics']['accuracy_test'] -= 0.01
  path.write_text(json.dumps(result))
  with pytest.raises(errors.UserError, match='has an accuracy of .* but'):
    check_result.check(tmp_path / 'wrong', str(folder))
  make_image_folder(tmp_path / 'other')
  for split in ('train', 'test'):
    (tmp_path / 'other' / split / 'red').rename(
      tmp_path / 'other' / split / 'rot'
    )
  with pytest.raises(
    errors.UserError, match='has the classes blue, green, rot'
  ):
    check_result.check(output, str(tmp_path / 'other'))


@pytest.mark.slow
def test_check_compares_classes_as_evaluations_do(recorded, tmp_path):
  """10 and 010 are two spellings of a class, as are words and WordNet ids."""
  folder, _, output = recorded
  shutil.copytree(folder, tmp_path / 'images')
  shutil.copytree(output, tmp_path / 'result')
  for color, number in {'blue': '10', 'green': '20', 'red': '30'}.items():
    for split in ('train', 'test'):
      path = tmp_path / 'images' / split
      (path / color).rename(path / f'0{number}')
    for name in ('config.json', 'labels.txt'):
      path = tmp_path / 'result' / 'model' / name
      path.write_text(path.read_text().replace(color, number))
  table = check_result.check(tmp_path / 'result', str(tmp_path / 'images'))
  assert '| examples_test | 15 | 15 |' in table


@pytest.mark.slow
def test_results_older_than_a_setting_are_checked(recorded, tmp_path):
  folder, _, output = recorded
  shutil.copytree(output, tmp_path / 'old')
  path = tmp_path / 'old' / 'config.json'
  config = json.loads(path.read_text())
  del config['columns'], config['pp']['exif']
  path.write_text(json.dumps(config))
  assert '| examples_test | 15' in check_result.check(path.parent, str(folder))


@pytest.mark.slow
def test_result_without_its_model_is_not_checked(recorded, tmp_path):
  folder, workdir, output = recorded
  record_result.record(workdir, tmp_path / 'new', HOW, model='')
  names = lambda root: {path.name for path in root.iterdir()}
  assert names(output) - names(tmp_path / 'new') == {'model'}
  with pytest.raises(errors.UserError, match='without its model. x trains it'):
    check_result.check(tmp_path / 'new', str(folder))


@pytest.mark.slow
def test_result_whose_model_is_elsewhere_is_checked(recorded, tmp_path):
  folder, workdir, _ = recorded
  for name, run in (('small', 'artifact_ema'), ('wrong', 'artifact')):
    checkpoint.save(
      checkpoint.load(workdir / run), tmp_path / f'{name}.npz', np.float16
    )
  record = lambda path: record_result.record(
    workdir, tmp_path / 'new', HOW, model=path
  )
  with pytest.raises(errors.UserError, match='wrong.npz is not the model of'):
    record('../wrong.npz')
  assert not (tmp_path / 'new').exists()
  record('../small.npz')
  assert not (tmp_path / 'new' / 'model').exists()
  table = check_result.check(tmp_path / 'new', str(folder))
  assert '| examples_test | 15 | 15 |' in table
  shutil.copytree(folder, tmp_path / 'fewer')
  for split in ('train', 'test'):
    shutil.rmtree(tmp_path / 'fewer' / split / 'green')
  with pytest.raises(errors.UserError, match='has the classes blue, red'):
    check_result.check(tmp_path / 'new', str(tmp_path / 'fewer'))


def test_results_page_has_the_recorded_numbers():
  page = (REPOSITORY / 'RESULTS.md').read_text()
  results = [*(REPOSITORY / 'results').glob('*/result.json')]
  assert results
  for path in results:
    result = json.loads(path.read_text())
    (row,) = (
      x for x in page.splitlines() if f'(results/{path.parent.name})' in x
    )
    # Nothing is rounded up; 1e-6 is for thousandths that floats have no exact value of.
    thousandths = math.floor(1000 * result['metrics']['accuracy_test'] + 1e-6)
    assert f'| {thousandths / 10:.1f} % |' in row, path
    assert result['commit'] in row


@pytest.mark.slow
def test_unfinished_runs_and_existing_folders_are_refused(recorded, tmp_path):
  _, workdir, output = recorded
  with pytest.raises(errors.UserError, match='exists'):
    record_result.record(workdir, output, HOW)
  with pytest.raises(errors.UserError, match='the run has not ended'):
    record_result.record(tmp_path, tmp_path / 'new', HOW)
  assert not (tmp_path / 'new').exists()
  with pytest.raises(errors.UserError, match='is not a result'):
    check_result.check(tmp_path, None)
