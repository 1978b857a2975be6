"""Tables of text as people have them, and damaged ones: one clear line each."""

import json

import pyarrow as pa
from pyarrow import parquet
import pytest

from vit_jax.data import sources
from vit_jax.data.rows import arrow_tables
from vit_jax.data.rows import table_files
from vit_jax.data.rows import text_tables
from vit_jax.runtime import errors

ROWS = [(f'{i}.png', 'ab'[i % 2]) for i in range(6)]


def text(rows=ROWS, header='image,label', comma=',', end='\n'):
  return end.join([header, *(comma.join(row) for row in rows)]) + end


def labels(path):
  return sources.get_source(str(path), 'train').labels().tolist()


@pytest.mark.parametrize(
  'content',
  [
    '\ufeff' + text(),
    text(end='\r\n'),
    text([(*row, '"one\ntwo"') for row in ROWS], 'image,label,note'),
    text(ROWS + ROWS[:2]),  # Images may occur several times.
  ],
  ids=['byte order mark', 'line ends', 'lines in a cell', 'rows twice'],
)
def test_what_other_programs_write_is_read(content, tmp_path):
  path = tmp_path / 't.csv'
  path.write_bytes(content.encode())
  found = labels(path)
  assert len(found) == content.count('.png')
  assert sum(found) == len(found) // 2


def line(label='a', **other):
  return json.dumps({'image': 'a.png', 'label': label, **other})


@pytest.mark.parametrize(
  ('name', 'content', 'message'),
  [
    ('t.csv', text(comma=';', header='image;label'), "columns seem to have ';'"),
    ('t.csv', text(comma='\t', header='image\tlabel'), 'columns seem to have'),
    ('t.tsv', text(), "one column, 'image,label': its columns seem to have ','"),
    ('t.csv', text(header='image, label'), "only image, ' label'. Name"),
    ('t.csv', text().encode('utf-16'), 'line 1 is not text in UTF-8: save'),
    ('t.csv', text() + 'x.png,caf\xe9\n', 'line 8 is not text in UTF-8: save'),
    ('t.csv', text().replace('3.png,b', '3.png,"b'), 'row 4 has a quotation mark'),
    ('t.csv', text().replace('3.png', 'https://x.org/3.png'), 'an address: down'),
    ('t.csv', 'image,label\n', 'has no rows'),
    ('t.csv', '', 'cannot be read: Empty CSV file'),
    ('t.jsonl', f'{line()}\n\n{{"image": \n', 'line 3 is not JSON: Expecting'),
    ('t.jsonl', f'{line()}\n{line(3)}', "the label 3, but line 1 has 'a': all"),
    ('t.jsonl', f'[{line()}, {line()}]', 'line 1 is not an object in JSON'),
    ('t.jsonl', line('caf') + '\xe9', 'line 1 is not text in UTF-8'),
    ('t.jsonl', line() + '\n' + line(''), 'row 2 has no label'),
  ],
)  # fmt: skip
def test_mistakes_give_one_line(name, content, message, tmp_path):
  path = tmp_path / name
  data = content if isinstance(content, bytes) else content.encode('latin-1')
  path.write_bytes(data)
  with pytest.raises(errors.UserError) as e:
    sources.get_source(str(path), 'train')
  assert str(path) in str(e.value)
  assert message in str(e.value)
  assert '\n' not in str(e.value)


def test_parquet_files_that_are_empty_or_cut_are_named(tmp_path):
  path = tmp_path / 't.parquet'
  table = pa.table({'image': [b'x'] * 6, 'label': [*'ababab']})
  parquet.write_table(table.slice(0, 0), path)
  with pytest.raises(errors.UserError, match='has no rows'):
    sources.get_source(str(path), 'train')
  parquet.write_table(table, path)
  path.write_bytes(path.read_bytes()[:-10])
  with pytest.raises(errors.UserError, match='cannot be read: Parquet magic'):
    sources.get_source(str(path), 'train')


@pytest.mark.parametrize('suffix', ['.csv', '.jsonl', '.parquet'])
def test_a_file_is_parsed_once_until_it_changes(suffix, tmp_path):
  path = tmp_path / f't{suffix}'
  cached = text_tables._parsed
  if suffix == '.parquet':
    cached = arrow_tables._known_schema

  def write(rows):
    if suffix == '.csv':
      path.write_text(text(rows))
    elif suffix == '.jsonl':
      keys = ('image', 'label')
      path.write_text(
        '\n'.join(json.dumps(dict(zip(keys, x, strict=True))) for x in rows)
      )
    else:
      images, names = zip(*rows, strict=True)
      parquet.write_table(pa.table({'image': images, 'label': names}), path)

  write(ROWS)
  cached.cache_clear()
  splits = sources.default_splits(str(path))
  columns = table_files.Columns()
  assert sources.task(str(path), columns) == 'multiclass'
  counts = [len(sources.get_source(str(path), split)) for split in splits]
  assert (counts, cached.cache_info().misses) == ([5, 1], 1)
  write(ROWS * 2)
  assert len(sources.get_source(str(path), 'train')) == 12
  assert cached.cache_info().misses == 2
