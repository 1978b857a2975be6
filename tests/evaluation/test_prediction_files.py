"""A row an image, the unsure ones first, and the files that were skipped."""

import csv
import dataclasses
import itertools
import json

from made import random_weights
from made import VIT
import numpy as np
from processes import call_command
from pyarrow import parquet
import pytest
import scipy.stats

from benchmarks import check_scores
import vit_jax
from vit_jax.evaluation import prediction_files
from vit_jax.evaluation import ranking
from vit_jax.runtime import errors
from vit_jax.weights import artifact
from vit_jax.weights import record as weights_lib


@pytest.fixture(scope='module')
def model(tmp_path_factory):
  """An artifact that knows the colours of `image_folder`."""
  weights = dataclasses.replace(
    random_weights(VIT, num_classes=3), class_names=['blue', 'green', 'red']
  )
  path = tmp_path_factory.mktemp('model') / 'artifact'
  artifact.save(path, weights)
  return path


def test_margin_and_entropy():
  rng = np.random.default_rng(0)
  p = rng.dirichlet(np.ones(5)).astype(np.float32)
  first, second = np.sort(p)[::-1][:2]
  assert ranking.margin(p) == pytest.approx(first - second)
  assert ranking.entropy(p, is_sigmoid=False) == pytest.approx(
    scipy.stats.entropy(p), rel=1e-5
  )
  both = sum(scipy.stats.entropy([x, 1 - x]) for x in p)
  assert ranking.entropy(p, is_sigmoid=True) == pytest.approx(both, rel=1e-5)
  assert ranking.margin(np.float32([0.3])) == pytest.approx(0.3)
  rows = [(0, np.float32([1, 0])), (1, np.float32([0.5, 0.5]))]
  weights = weights_lib.Weights({}, None)
  assert [i for i, _ in ranking.unsure_first(iter(rows), weights)] == [1, 0]


def read(path):
  """Returns the rows of a file as text and numbers, without empty cells."""
  if path.suffix == '.parquet':
    rows = parquet.read_table(path).to_pylist()
  elif path.suffix == '.csv':
    rows = list(csv.DictReader(path.open(encoding='utf-8')))
  else:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
      for name, p in row.pop('probabilities', {}).items():
        row[f'probability of {name}'] = p
  return [
    {
      k: v if k in _TEXT else float(v)
      for k, v in row.items()
      if v not in ('', None)
    }
    for row in rows
  ]


_TEXT = ('image', 'label', 'predicted', 'skipped')


def test_predict_writes_all_formats(model, image_folder, tmp_path):
  folder = image_folder / 'test' / 'red'
  (folder / 'bad.jpg').write_bytes(b'no image')
  found = []
  for suffix in ('.csv', '.jsonl', '.parquet'):
    path = tmp_path / f'x{suffix}'
    result = call_command(
      'predict',
      f'--model={model}',
      f'--output={path}',
      '--on_bad_image=skip',
      '--sort=unsure',
      str(folder),
    )
    assert f'The predictions of 5 images are in {path}' in result.stdout
    found.append(read(path))
  assert found[0] == found[1] == found[2]
  *rows, bad = found[0]
  assert bad['image'].endswith('bad.jpg')
  assert 'not a JPEG' in bad['skipped']
  assert bad.keys() == {'image', 'skipped'}
  assert [r['margin'] for r in rows] == sorted(r['margin'] for r in rows)
  names = [row['image'] for row in rows]
  wanted = dict(
    zip(names, vit_jax.load(model).predict(names, top_k=1), strict=True)
  )
  for row in rows:
    [(label, p)] = wanted[row['image']]
    assert row['predicted'] == label
    assert row['confidence'] == pytest.approx(p, abs=1e-6)
    assert row[f'probability of {label}'] == row['confidence']


def test_predict_without_a_readable_image_fails_and_writes_nothing(
  model, tmp_path
):
  (tmp_path / 'bad.jpg').write_bytes(b'no image')
  for flag in ('', f'--output={tmp_path}/x.csv', f'--html={tmp_path}/x.html'):
    result = call_command(
      'predict',
      f'--model={model}',
      '--on_bad_image=skip',
      *filter(None, [flag]),
      str(tmp_path / 'bad.jpg'),
    )
    assert result.returncode == 1
    assert 'None of 1 images can be decoded.' in result.stderr
  images = tmp_path / 'images'
  for name in ('train/blue', 'test/blue'):
    (images / name).mkdir(parents=True)
    (images / name / 'bad.jpg').write_bytes(b'no image')
  result = call_command(
    'evaluate',
    f'--model={model}',
    f'--dataset={images}',
    '--on_bad_image=skip',
    f'--predictions={tmp_path}/x.csv',
  )
  assert result.returncode == 1
  assert 'None of 1 images can be decoded.' in result.stderr
  assert {path.name for path in tmp_path.iterdir()} == {'bad.jpg', 'images'}


@pytest.mark.parametrize(
  'words, message',
  [
    (('predict', '--output=x.csv', '--json'), '--json is for printed predict'),
    (('predict', '--output=x.csv', '--top_k=3'), '--top_k is for printed pred'),
    (
      ('evaluate', '--dataset=digits', '--real_labels=x.json'),
      '--real_labels is for --real',
    ),
  ],
)
def test_flags_without_effect_are_refused(model, words, message):
  command, *rest = words
  result = call_command(command, f'--model={model}', *rest)
  assert result.returncode == 1
  assert message in result.stderr


def test_evaluate_writes_labels(model, image_folder, tmp_path):
  path, scores = tmp_path / 'x.jsonl', tmp_path / 'scores.json'
  result = call_command(
    'evaluate',
    f'--model={model}',
    f'--dataset={image_folder}',
    f'--predictions={path}',
    f'--output={scores}',
  )
  rows = read(path)
  assert len(rows) == 15
  assert all(f'/test/{row["label"]}/' in row['image'] for row in rows)
  right = np.mean([row['label'] == row['predicted'] for row in rows])
  assert json.loads(result.stdout)['accuracy_test'] == pytest.approx(right)
  found = check_scores.compare(path, scores)
  assert len(found) == 7
  for name, ours, theirs in found:
    assert ours == pytest.approx(theirs, abs=1e-6), name


def test_labels_have_the_names_of_the_model(image_folder, tmp_path):
  ids = {'blue': 'n01443537', 'green': 'n01629819', 'red': 'n12267677'}
  for path in sorted(image_folder.glob('*/*')):
    path.rename(path.with_name(ids[path.name]))
  path = tmp_path / 'x.csv'
  args = ('--model=ViT-Mini_8', f'--dataset={image_folder}')
  result = call_command('evaluate', *args, f'--predictions={path}')
  rows = read(path)
  names = {'goldfish', 'European fire salamander', 'acorn'}
  assert {row['label'] for row in rows} == names
  right = np.mean([row['label'] == row['predicted'] for row in rows])
  assert json.loads(result.stdout)['accuracy_test'] == pytest.approx(right)


def test_other_endings_are_refused_before_anything_is_read():
  result = call_command('predict', '--model=nowhere', '--output=x.xls', 'y')
  assert 'output=x.xls must end in .csv, .jsonl or .parquet' in result.stderr
  result = call_command(
    'evaluate', '--model=nowhere', '--dataset=digits', '--predictions=x.xls'
  )
  assert '--predictions=x.xls must end in .csv' in result.stderr
  with pytest.raises(errors.UserError, match='must end in'):
    prediction_files.write([], 'x')


@pytest.mark.parametrize(
  'words',
  [
    ('predict', '--model=nowhere', '--output', 'x.csv', 'y'),
    ('predict', '--model=nowhere', '--html', 'x.html', 'y'),
    (
      'evaluate',
      '--model=nowhere',
      '--dataset=nowhere',
      '--predictions',
      'x.csv',
    ),
    ('evaluate', '--model=nowhere', '--dataset=nowhere', '--output', 'x.json'),
    ('data', 'nowhere', '--sheet', 'x.png'),
    ('show_batch', '--config=digits', '--output', 'x.png'),
    ('export', '--model=nowhere', '--output', 'x.onnx'),
  ],
)
def test_folders_are_refused_before_anything_is_read(tmp_path, words):
  flag, name = next(
    pair for pair in itertools.pairwise(words) if pair[1][1] == '.'
  )
  (tmp_path / name).mkdir()
  words = [str(tmp_path / name) if w == name else w for w in words]
  result = call_command(*words)
  assert result.returncode == 1
  assert f'{flag}={tmp_path / name} is a folder. Name a file.' in result.stderr
