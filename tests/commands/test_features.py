"""Features of many images, in files that other tools read."""

import cv2
from golden_files import GOLDEN
import numpy as np
from pictures import picture
from processes import call_command
import pytest

import vit_jax
from vit_jax.evaluation import feature_files
from vit_jax.runtime import errors


@pytest.fixture
def photos(tmp_path):
  for i in range(5):
    cv2.imwrite(str(tmp_path / f'{i}.png'), picture(i))
  return tmp_path


def read(path):
  if path.suffix == '.npz':
    with np.load(path) as arrays:
      return list(arrays['names']), arrays['features']
  pq = pytest.importorskip('pyarrow.parquet')
  table = pq.read_table(path)
  column = table['features'].combine_chunks()
  return table['name'].to_pylist(), column.to_numpy_ndarray()


@pytest.mark.parametrize('suffix', ['.npz', '.parquet'])
@pytest.mark.parametrize('pooling', [None, 'tokens'])
def test_files_hold_names_and_features(photos, suffix, pooling, monkeypatch):
  if suffix == '.parquet':
    pytest.importorskip('pyarrow')
  monkeypatch.setattr(feature_files, '_ROWS', 2)  # Several chunks.
  predictor = vit_jax.load(GOLDEN / 'vit_token.npz')
  names = [str(photos / f'{i}.png') for i in range(5)]
  path = photos / 'new' / f'x{suffix}'
  rows = predictor.iter_features(names, pooling=pooling)
  named = ((names[place], row) for place, row in rows)
  assert feature_files.write(named, str(path)) == 5
  got_names, got = read(path)
  assert got_names == names
  np.testing.assert_array_equal(got, predictor.features(names, pooling=pooling))
  assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_failed_write_keeps_the_old_file(photos):
  path = photos / 'x.npz'
  path.write_text('old')

  def rows():
    yield 'a', np.zeros(3, np.float32)
    raise errors.UserError('bad image')

  with pytest.raises(errors.UserError, match='bad image'):
    feature_files.write(rows(), str(path))
  with pytest.raises(errors.UserError, match='None of the images'):
    feature_files.write([], str(path))
  assert path.read_text() == 'old'
  assert sorted(p.name for p in photos.iterdir() if p.suffix != '.png') == [
    'x.npz'
  ]
  with pytest.raises(errors.UserError, match='must end in .npz or .parquet'):
    feature_files.write(rows(), str(photos / 'x.csv'))
  with pytest.raises(errors.UserError, match='cannot be written: '):
    feature_files.write(rows(), str(path / 'y.npz'))


def test_command_skips_bad_images_on_request(photos, caplog):
  (photos / '9.jpg').write_text('no image')
  args = (
    'features',
    f'--model={GOLDEN}/vit_token.npz',
    f'--output={photos}/x.npz',
    '--layer=2',
    '--pooling=gap',
    '--batch=2',
    str(photos),
  )
  result = call_command(*args)
  assert result.returncode == 1
  assert '9.jpg cannot be decoded' in result.stderr
  assert 'Traceback' not in result.stderr
  assert not (photos / 'x.npz').exists()
  result = call_command(*args, '--on_bad_image=skip')
  assert result.returncode == 0, result.stderr
  assert 'The features of 5 images are in' in result.stdout
  assert '1 images were skipped' in caplog.text
  names, got = read(photos / 'x.npz')
  assert names == [str(photos / f'{i}.png') for i in range(5)]
  predictor = vit_jax.load(GOLDEN / 'vit_token.npz')
  want = predictor.features(names, layer=2, pooling='gap')
  np.testing.assert_allclose(got, want, atol=1e-5)
