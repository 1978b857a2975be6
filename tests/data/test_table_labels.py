"""Labels of tables: several classes, or numbers; mistakes give one line."""

import json

import numpy as np
import pyarrow as pa
from pyarrow import parquet
import pytest

from vit_jax.configs import labels
from vit_jax.data import numbers
from vit_jax.data import sources
from vit_jax.data.rows import table_files
from vit_jax.data.rows import table_labels
from vit_jax.runtime import errors


def read(rows, tmp_path, suffix='.csv', **columns):
  """Returns the labels of a table whose rows are for training."""
  path = write(rows, tmp_path / f'table{suffix}')
  columns = table_files.Columns(**columns)
  table = table_files.read(path, columns)
  return table_labels.read(table, ['train'] * len(rows), path, columns)


def write(rows, path):
  rows = [{'image': f'{i}.png', **row} for i, row in enumerate(rows)]
  if path.suffix == '.jsonl':
    path.write_text('\n'.join(map(json.dumps, rows)))
  else:
    lines = [rows[0], *(row.values() for row in rows)]
    path.write_text('\n'.join(','.join(map(str, line)) for line in lines))
  return path


def message(*args, **kwargs):
  with pytest.raises(errors.UserError) as e:
    read(*args, **kwargs)
  assert '\n' not in str(e.value)
  return str(e.value)


MARKS = [[1, 1, 0], [0, 0, 0], [0, 1, 0], [1, 0, 1]]


@pytest.mark.parametrize(
  ('values', 'suffix', 'columns'),
  [
    (['a|b', '', 'b', 'c | a'], '.csv', {}),
    (['a;b', '', 'b', 'a;c;a'], '.csv', {'separator': ';'}),
    ([['a', 'b'], [], ['b'], ['c', 'a']], '.jsonl', {}),
    ([['a', 'b'], None, ['b'], ['c', 'a']], '.jsonl', {}),
  ],
)
def test_several_classes_are_read(values, suffix, columns, tmp_path):
  found = read([{'labels': x} for x in values], tmp_path, suffix, **columns)
  assert (found.task, found.names) == (labels.MULTILABEL, ['a', 'b', 'c'])
  assert found.values.dtype == np.float32
  assert found.values.tolist() == MARKS


def test_columns_of_zeros_and_ones_are_classes(tmp_path):
  rows = [dict(zip('abc', row, strict=True)) for row in MARKS]
  found = read(rows, tmp_path, labels='a,b,c')
  assert (found.task, found.names) == (labels.MULTILABEL, ['a', 'b', 'c'])
  assert found.values.tolist() == MARKS
  rows[2]['b'] = 2
  assert "row 3 has the b '2', must be 0 or 1" in message(
    rows, tmp_path, labels='a,b,c'
  )


def test_numbers_have_names_and_units(tmp_path):
  rows = [{'width': 1.5, 'height': '2e1'}, {'width': -3, 'height': 0}]
  found = read(rows, tmp_path, target='height,width', units='mm,cm')
  assert found.task == labels.REGRESSION
  assert (list(found.names), found.units) == (
    ['height', 'width'],
    ['mm', 'cm'],
  )
  assert found.values.tolist() == [[20, 1.5], [0, -3]]


@pytest.mark.parametrize('value', ['tall', 'nan', 'inf', '1,5'])
def test_what_is_not_a_number_is_named(value, tmp_path):
  rows = [{'target': '1'}, {'target': value}]
  found = message(rows, tmp_path, '.jsonl')
  assert f'row 2 has the target {value!r}, which is not a number' in found


@pytest.mark.parametrize('column', ['label', 'target', 'weight'])
@pytest.mark.parametrize('suffix', ['.csv', '.jsonl'])
def test_empty_cells_are_named(column, suffix, tmp_path):
  rows = [{'label': 'a', 'weight': 1, 'target': 1} for _ in range(3)]
  rows[1][column] = '' if suffix == '.csv' else None
  task = 'regression' if column == 'target' else 'multiclass'
  found = message(rows, tmp_path, suffix, task=task)
  assert f'row 2 has no {column}: it is missing, empty, or' in found
  assert 'None' not in found


def test_a_class_in_quotes_may_be_called_as_what_is_missing(tmp_path):
  found = read([{'label': '"NA"'}, {'label': 'b'}], tmp_path)
  assert found.names == ['NA', 'b']
  assert 'row 1 has no label' in message([{'label': 'NA'}], tmp_path)


def test_words_for_what_is_missing_are_not_taken_for_no_class(tmp_path):
  rows = [{'labels': x} for x in ('a|NA', '', 'NA')]
  found = message(rows, tmp_path)
  assert 'row 3 has no labels: ' in found
  assert found.endswith('For no class, leave the cell empty.')
  found = read(rows[:2], tmp_path)
  assert (found.names, found.values.tolist()) == (['NA', 'a'], [[1, 1], [0, 0]])
  assert 'separator is empty, must be what is between' in message(
    rows, tmp_path, separator=''
  )


@pytest.mark.parametrize(
  'values, match',
  [
    ([''] * 4, "No image of .* has a class in the column 'cat'"),
    (['0', '1', '1', '0'], "has only 0 and 1 in the column 'cat'"),
  ],
)
def test_columns_without_names_of_classes_are_refused(values, match, tmp_path):
  rows = [f'{i}.png,{value}' for i, value in enumerate(values)]
  path = tmp_path / 'x.csv'
  path.write_text('\n'.join(['image,cat', *rows]))
  columns = table_files.Columns(task=labels.MULTILABEL, labels='cat')
  with pytest.raises(errors.UserError, match=match):
    sources.get_source(str(path), 'train', columns=columns)


@pytest.mark.parametrize(
  'values, names',
  [
    (['2020-01-01', '2020-01-02'], ['2020-01-01', '2020-01-02']),
    ([['2020-01-01'], [], ['b']], ['2020-01-01', 'b']),
    ([['2020-01-02'], []], ['2020-01-02']),
  ],
)
def test_dates_in_json_stay_as_they_are(values, names, tmp_path):
  column = 'labels' if isinstance(values[0], list) else 'label'
  found = read([{column: x} for x in values], tmp_path, '.jsonl')
  assert found.names == names


def test_labels_of_parquet_may_be_bytes_but_not_nan(tmp_path):
  path = tmp_path / 'table.parquet'

  def read_values(values):
    columns = table_files.Columns()
    images = [f'{i}.png' for i in range(len(values))]
    parquet.write_table(pa.table({'image': images, 'label': values}), path)
    table = table_files.read(path, columns)
    of_row = ['train'] * len(values)
    return table_labels.read(table, of_row, path, columns)

  assert read_values([b'cat', b'ant']).names == ['ant', 'cat']
  with pytest.raises(errors.UserError, match='row 2 has no label'):
    read_values([1.0, float('nan'), 2.0])


def test_spaces_around_a_class_do_not_count(tmp_path):
  found = read([{'label': x} for x in ('a', 'b ', ' a', 'b')], tmp_path)
  assert (found.names, found.values.tolist()) == (['a', 'b'], [0, 1, 0, 1])


@pytest.mark.parametrize(
  ('text', 'what'),
  [('a\nb\na\n', "'a' twice"), ('a\n\nb\n', 'an empty name')],
)
def test_a_file_of_classes_has_each_once(text, what, tmp_path):
  (tmp_path / 'classes.txt').write_text(f'\ufeff{text}')
  found = message(
    [{'label': 'a'}], tmp_path, classes=str(tmp_path / 'classes.txt')
  )
  assert f'classes.txt has {what}: each must be another name' in found


def test_units_must_be_as_many_as_numbers(tmp_path):
  rows = [{'a': 1, 'b': 2}]
  found = message(rows, tmp_path, target='a,b', units='mm')
  assert "columns.units is 'mm'" in found
  assert 'a, b' in found


def test_columns_tell_the_task(tmp_path):
  def task(*names, **columns):
    path = write([dict.fromkeys(names, 1)], tmp_path / 't.csv')
    return table_files.complete(path, table_files.Columns(**columns)).task

  assert task('label') == labels.MULTICLASS
  assert task('labels') == labels.MULTILABEL
  assert task('target', 'other') == labels.REGRESSION
  assert task('size', target='size') == labels.REGRESSION
  assert task('label', 'target', task='regression') == labels.REGRESSION
  for names, want in (
    (('label', 'target'), 'config.task to one of multiclass, regression'),
    (('other',), "no column 'label' (or 'labels', 'target')"),
  ):
    with pytest.raises(errors.UserError) as e:
      task(*names)
    assert want in str(e.value)
  with pytest.raises(errors.UserError, match="no column 'target', only"):
    task('label', task='regression')


def test_only_tables_have_other_labels(image_folder):
  columns = table_files.Columns(task='multilabel')
  with pytest.raises(errors.UserError, match='one class each: only a table'):
    sources.task(str(image_folder), columns)
  assert sources.task('digits') == labels.MULTICLASS


def test_a_number_that_never_changes_is_refused(tmp_path):
  path = write([{'a': i, 'b': 0.1} for i in range(4)], tmp_path / 't.csv')
  columns = table_files.Columns(target='a,b')
  source = sources.get_source(str(path), 'train', columns=columns)
  assert numbers.of_source(source)['a']['mean'] == 1.5
  with pytest.raises(
    errors.UserError, match=r'4 training images have the b 0\.1'
  ):
    numbers.scale(source)
