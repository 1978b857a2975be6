"""Tables of images: every format gives the same source; mistakes give one line."""

import json
import pickle
import unicodedata

import cv2
import numpy as np
from processes import call_command
import pyarrow as pa
from pyarrow import parquet
import pytest
from runs import tiny

from vit_jax import checkpoint
from vit_jax import train
from vit_jax.configs import common
from vit_jax.data import sources
from vit_jax.data.rows import table_files
from vit_jax.reporting import report
from vit_jax.runtime import errors

COLOURS = {'blue': 0, 'green': 1, 'red': 2}


def image(label, seed):
  pixels = np.random.RandomState(seed).randint(0, 80, (20, 24, 3), np.uint8)
  pixels[..., COLOURS[label]] += 120
  return cv2.imencode('.png', pixels)[1].tobytes()


@pytest.fixture
def rows(tmp_path):
  """12 training and 6 test rows; their images are in files."""
  (tmp_path / 'images').mkdir()
  made = []
  for i in range(18):
    label = list(COLOURS)[i % 3]
    name = f'images/{i:02}, a.png'
    (tmp_path / name).write_bytes(image(label, i))
    split = 'train' if i < 12 else 'test'
    made.append({'image': name, 'label': label, 'split': split, 'other': i})
  return made


def write(rows, path):
  """Writes rows in the format that the name of the file ends in."""
  if path.suffix == '.jsonl':
    path.write_text('\n'.join(map(json.dumps, rows)))
  elif path.suffix == '.parquet':
    parquet.write_table(pa.Table.from_pylist(rows), path)
  else:
    comma = {'.csv': ',', '.tsv': '\t'}[path.suffix]
    quote = lambda x: f'"{x}"' if ',' in str(x) else str(x)
    lines = [rows[0].keys(), *(map(quote, row.values()) for row in rows)]
    path.write_text('\n'.join(comma.join(line) for line in lines), 'utf-8-sig')
  return path


def content(path, split, **columns):
  source = sources.get_source(
    str(path), split, columns=table_files.Columns(**columns)
  )
  source = pickle.loads(pickle.dumps(source))  # As for worker processes.
  examples = [source[i] for i in range(len(source))]
  assert source.labels().tolist() == [x['label'] for x in examples]
  return source.class_names, [(x['image'], x['label']) for x in examples]


def message(path, split='train', **columns):
  with pytest.raises(errors.UserError) as e:
    sources.get_source(str(path), split, columns=table_files.Columns(**columns))
  assert '\n' not in str(e.value)
  return str(e.value)


def test_formats_give_the_same_images(rows, tmp_path):
  found = [
    content(write(rows, tmp_path / f't{suffix}'), 'train')
    for suffix in common.TABLES
    if suffix != common.NPZ  # It has pixels, not files.
  ]
  assert all(x == found[0] for x in found)
  class_names, examples = found[0]
  assert class_names == ['blue', 'green', 'red']
  assert len(examples) == 12
  labels = {
    (tmp_path / x['image']).read_bytes(): COLOURS[x['label']] for x in rows
  }
  assert all(labels[x] == label for x, label in examples)
  _, tested = content(tmp_path / 't.csv', 'test')
  assert len(tested) == 6
  assert not {x for x, _ in tested} & {x for x, _ in examples}
  assert content(write(rows[::-1], tmp_path / 'u.csv'), 'train') == found[0]


def test_parquet_may_hold_the_bytes(rows, tmp_path):
  files = content(write(rows, tmp_path / 't.csv'), 'train')
  for kind in ('bytes', 'as datasets does'):
    held = []
    for row in rows:
      data = (tmp_path / row['image']).read_bytes()
      value = data if kind == 'bytes' else {'bytes': data, 'path': row['image']}
      held.append({**row, 'image': value})
    assert content(write(held, tmp_path / 'b.parquet'), 'train') == files


def test_slices_have_their_share_of_every_class(rows, tmp_path):
  for row in rows:
    del row['split']
  path = write(rows, tmp_path / 't.csv')
  assert sources.default_splits(str(path)) == ('train[:80%]', 'train[80%:]')
  half = sources.get_source(str(path), 'train[:50%]')
  assert np.bincount(half.labels()).tolist() == [3, 3, 3]
  assert half.split_by


def test_names_of_columns_and_classes_can_be_given(rows, tmp_path):
  for row in rows:
    row['kind'], row['file'] = row.pop('label'), row.pop('image')
  path = write(rows, tmp_path / 't.csv')
  (tmp_path / 'classes.txt').write_text('red\nblue\ngrey\ngreen\n')
  names, examples = content(
    path,
    'train',
    image='file',
    label='kind',
    classes=str(tmp_path / 'classes.txt'),
  )
  assert names == ['red', 'blue', 'grey', 'green']
  assert {label for _, label in examples} == {0, 1, 3}


@pytest.mark.parametrize(
  ('labels', 'want'),
  [
    (['10', '9', '2'], ['2', '9', '10']),
    (['007', '1', '7'], ['1', '007', '7']),
    ([unicodedata.normalize('NFD', 'é'), 'é', 'a'], ['a', 'é']),
  ],
)
def test_classes_are_text_and_numbers_are_in_their_order(
  labels, want, rows, tmp_path
):
  made = [
    {**row, 'label': label, 'split': 'train'}
    for row, label in zip(rows, labels, strict=False)
  ]
  for suffix in ('.csv', '.jsonl'):
    names, _ = content(write(made, tmp_path / f't{suffix}'), 'train')
    assert names == want


def test_mistakes_are_named_with_their_row(rows, tmp_path):
  path = write(rows, tmp_path / 't.csv')
  assert message(path, label='kind') == (
    f"{path} has no column 'kind' (or 'labels', 'target'), only image, label, split, other. Name the one"
    f' with the labels: config.columns.label=NAME.'
  )
  (tmp_path / 'c.txt').write_text('red\nblue\n')
  assert message(path, classes=str(tmp_path / 'c.txt')) == (
    f"{path}, row 2 has the label 'green', which is not one of the 2 classes: red,"
    f' blue.'
  )
  twice = [*rows, {**rows[0], 'split': 'test'}]
  assert 'in train (row 1) and in test (row 19)' in message(
    write(twice, tmp_path / 'twice.csv')
  )
  spelled = {**rows[0], 'split': 'test', 'image': f'./{rows[0]["image"]}'}
  for name in (spelled['image'], str(tmp_path / rows[0]['image'])):
    found = message(
      write([*rows, {**spelled, 'image': name}], tmp_path / 'spelled.csv')
    )
    assert 'in train (row 1) and in test (row 19)' in found
  odd = [*rows, {**rows[0], 'label': 'pink', 'split': 'test', 'image': 'x.png'}]
  found = message(write(odd, tmp_path / 'odd.csv'))
  assert 'has labels in other splits that train lacks: pink (' in found
  assert 'odd.csv, row 19).' in found
  for suffix in ('.jsonl', '.parquet', '.csv'):
    none = [*rows, {**rows[0], 'image': None if suffix != '.csv' else ''}]
    assert 'row 19 has no image' in message(
      write(none, tmp_path / f'n{suffix}')
    )
    broken = tmp_path / f'broken{suffix}'
    broken.write_bytes(b'image,label\n"a')
    assert str(broken) in message(broken)
  (tmp_path / 'empty.csv').write_text('image,label\n')
  assert 'has no rows' in message(tmp_path / 'empty.csv')
  (tmp_path / 'same.csv').write_text('image,label,label\na.png,red,blue\n')
  assert message(tmp_path / 'same.csv').endswith(
    "has 2 columns 'label': rename all but one."
  )
  assert 'no such file here' in message(tmp_path / 'missing.csv')


def test_a_missing_image_is_named(rows, tmp_path):
  path = write(rows, tmp_path / 't.csv')
  (tmp_path / rows[0]['image']).unlink()
  config = tiny(path)
  config.report = False
  with pytest.raises(errors.UserError, match='There is no image .*00, a.png'):
    train.train_and_evaluate(config, str(tmp_path / 'run'))


@pytest.mark.slow
def test_a_run_trains_reports_and_is_evaluated(rows, tmp_path):
  for row in rows:
    row['kind'] = row.pop('label')
    del row['split']
  path = write(rows, tmp_path / 't.tsv')
  config = tiny(path)
  config.columns.label = 'kind'
  config.total_steps = config.eval_every = 2
  train.train_and_evaluate(config, str(tmp_path / 'run'))
  weights = checkpoint.read(tmp_path / 'run' / 'artifact')
  assert list(weights.class_names) == ['blue', 'green', 'red']
  assert 'the content of each class' in (
    report.of_workdir(str(tmp_path / 'run')).read_text()
  )
  command = (
    'evaluate',
    f'--model={tmp_path / "run" / "artifact"}',
    f'--dataset={path}',
    '--label_column=kind',
  )
  result = json.loads(call_command(*command).stdout)
  assert result['split'] == 'train[80%:]'
  assert result['examples_test'] == 4
  metrics = weights.info['metrics']
  assert result['accuracy_test'] == pytest.approx(metrics['accuracy_test'])


def test_the_command_says_what_a_table_has(rows, tmp_path):
  path = write(rows, tmp_path / 't.csv')
  sheet = tmp_path / 'new' / 'sheet.png'
  text = call_command('data', str(path), f'--sheet={sheet}').stdout
  both = call_command('data', str(path), f'--sheet={sheet}', '--json')
  assert json.loads(both.stdout)['splits']
  assert str(sheet) in both.stderr
  assert 'train (train): 12 images' in text
  assert 'blue 4, green 4, red 4' in text
  assert '20 x 24 (median), 20 to 20 x 24 to 24' in text
  assert 'among the test images: 0' in text
  assert cv2.imread(str(sheet)).shape[2] == 3
