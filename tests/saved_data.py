"""Data sets as Hugging Face's `datasets` writes them, and what a source reads of them."""

import json
import pickle

import cv2
import numpy as np
import pyarrow as pa
from pyarrow import parquet
import pytest

from vit_jax.data import sources
from vit_jax.data.rows import table_files
from vit_jax.runtime import errors

NAMES = (
  'red',
  'green',
  'blue',
)  # Not sorted: their order is that of the logits.
CLASS = {'_type': 'ClassLabel', 'names': NAMES}
FEATURES = {'image': {'_type': 'Image'}, 'label': CLASS}


def image(i):
  pixels = np.random.RandomState(i).randint(0, 80, (20, 24, 3), np.uint8)
  pixels[..., i % 3] += 120
  return cv2.imencode('.png', pixels)[1].tobytes()


def rows(numbers):
  held = [{'bytes': image(i), 'path': f'{i % 6}.png'} for i in numbers]
  return [
    {'image': x, 'label': i % 3} for x, i in zip(held, numbers, strict=True)
  ]


def table(rows, features=FEATURES):
  """Returns rows with the schema that `datasets` writes."""
  info = json.dumps({'info': {'features': features}})
  return pa.Table.from_pylist(rows).replace_schema_metadata(
    {'huggingface': info}
  )


def save(folder, parts, features=FEATURES):
  """Writes what `Dataset.save_to_disk` writes, a file for each part."""
  folder.mkdir(parents=True)
  names = [f'data-{i:05}-of-{len(parts):05}.arrow' for i in range(len(parts))]
  for name, part in zip(names, parts, strict=True):
    made = table(part, features)
    with pa.ipc.new_stream(folder / name, made.schema) as writer:
      writer.write_table(made, max_chunksize=2)
  state = {'_data_files': [{'filename': name} for name in names]}
  (folder / 'state.json').write_text(json.dumps(state))
  return folder


def save_dict(folder, splits, features=FEATURES):
  """Writes what `DatasetDict.save_to_disk` writes."""
  for name, parts in splits.items():
    save(folder / name, parts, features)
  (folder / 'dataset_dict.json').write_text(json.dumps({'splits': [*splits]}))
  return folder


def repository(folder, splits, features=FEATURES):
  """Writes the files of a repository of the hub."""
  (folder / 'data').mkdir(parents=True)
  for split, parts in splits.items():
    for i, part in enumerate(parts):
      name = f'{split}-{i:05}-of-{len(parts):05}.parquet'
      parquet.write_table(table(part, features), folder / 'data' / name)
  return folder


SPLITS = {
  'train': [rows(range(5)), rows(range(5, 12))],
  'test': [rows(range(12, 18))],
}


def content(dataset, split='train', **columns):
  source = sources.get_source(
    str(dataset), split, columns=table_files.Columns(**columns)
  )
  data = pickle.dumps(source)  # As for worker processes.
  assert len(data) < 4000
  source = pickle.loads(data)
  examples = [source[i] for i in range(len(source))]
  assert source.labels().tolist() == [x['label'] for x in examples]
  assert len(set(source.names())) == len(source)
  return source.class_names, {x['image']: x['label'] for x in examples}


def message(dataset, split='train', **columns):
  with pytest.raises(errors.UserError) as e:
    content(dataset, split, **columns)
  assert '\n' not in str(e.value)
  return str(e.value)
