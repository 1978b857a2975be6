"""Measures the loader on the same images as folder, table, Parquet, shards and Arrow.

python -m benchmarks.sources --folder=/path/to/imagenette --output=/tmp/sources \
  --json=results/sources_cpu.json

The folder, `{split}/{class}/{image}`, is copied once into every other form. Each is
opened as training opens it, decoded, cropped and batched, in a process of its own that
waits while the others are measured. `against_folder` is the median over turns, each
against the folder's neighbouring turn. Other programs disturb the least processor time
of all turns least; `read_us` is the part of it that reads an image, which alone differs
between the forms.
"""

from collections.abc import Callable
import contextlib
import csv
import functools
import io
import json
import os
import pathlib
import sys
import tarfile
import time
from typing import Any

from absl import app
from absl import flags
import numpy as np
import pyarrow as pa
from pyarrow import parquet

from benchmarks import harness
from benchmarks import input_pipeline
from benchmarks import machine as machine_lib
import vit_jax
from vit_jax.data import datasets
from vit_jax.data import sources

_SPLITS = ('train', 'test')
_SHARD = 1000  # Images in a shard, or in a part of Arrow files.
_READ = 500  # Images that are read alone before each turn.
_PACKAGES = (
  'grain',
  'numpy',
  'opencv-python-headless',
  'pyarrow',
  'simplejpeg',
)

# Class and file of each image of each split.
_Images = dict[str, list[tuple[str, pathlib.Path]]]


def copies(folder: str, output: pathlib.Path) -> dict[str, str]:
  """Writes a folder's images in every form; returns the data set of each."""
  made = {
    'folder': folder,
    'table': f'{output}/table.csv',
    'Parquet': f'{output}/images.parquet',
    'shards': f'{output}/shards/*.tar',
    'save_to_disk': f'{output}/saved',
  }
  whole = output / 'whole'
  if not whole.is_file():
    output.mkdir(parents=True, exist_ok=True)
    images = _images(folder)
    _write_table(images, output / 'table.csv')
    _write_parquet(images, output / 'images.parquet')
    _write_shards(images, output / 'shards')
    _write_saved(images, output / 'saved')
    whole.touch()
  return made


def _images(folder: str) -> _Images:
  found: _Images = {}
  for split in _SPLITS:
    source = sources.get_source(folder, split)
    labels = [source.class_names[i] for i in source.labels()]
    paths = [pathlib.Path(x).resolve() for x in source.names()]
    found[split] = list(zip(labels, paths, strict=True))
  return found


def _write_table(images: _Images, path: pathlib.Path) -> None:
  with open(path, 'w', newline='') as file:
    table = csv.writer(file)
    table.writerow(('image', 'label', 'split'))
    for split, rows in images.items():
      table.writerows((image, label, split) for label, image in rows)


def _columns(rows: list[tuple[str, pathlib.Path]]) -> dict[str, list[Any]]:
  held = [{'bytes': x.read_bytes(), 'path': x.name} for _, x in rows]
  return {'image': held, 'label': [label for label, _ in rows]}


def _write_parquet(images: _Images, path: pathlib.Path) -> None:
  tables = [
    pa.table({**_columns(rows), 'split': [split] * len(rows)})
    for split, rows in images.items()
  ]
  parquet.write_table(pa.concat_tables(tables), path)


def _write_shards(images: _Images, folder: pathlib.Path) -> None:
  folder.mkdir(exist_ok=True)
  for split, rows in images.items():
    for first in range(0, len(rows), _SHARD):
      name = f'{split}-{first // _SHARD:03}.tar'
      with tarfile.open(folder / name, 'w') as archive:
        for i, (label, image) in enumerate(rows[first : first + _SHARD], first):
          archive.add(image, f'{i:06}{image.suffix}')
          member = tarfile.TarInfo(f'{i:06}.cls')
          member.size = len(label.encode())
          archive.addfile(member, io.BytesIO(label.encode()))


def _write_saved(images: _Images, folder: pathlib.Path) -> None:
  """Writes what `DatasetDict.save_to_disk` of Hugging Face writes."""
  for split, rows in images.items():
    (folder / split).mkdir(parents=True, exist_ok=True)
    files = []
    for first in range(0, len(rows), _SHARD):
      table = pa.table(_columns(rows[first : first + _SHARD]))
      files.append(f'data-{first // _SHARD:05}.arrow')
      with pa.ipc.new_stream(folder / split / files[-1], table.schema) as out:
        out.write_table(table)
    state = {'_data_files': [{'filename': name} for name in files]}
    (folder / split / 'state.json').write_text(json.dumps(state))
  splits = json.dumps({'splits': list(images)})
  (folder / 'dataset_dict.json').write_text(splits)


def _serve(dataset: str) -> None:
  """Measures a turn for each line with its seconds, until there are no more."""
  config = vit_jax.run_file('finetune_mini', dataset)
  data = datasets.open_splits(datasets.with_data(config)).train
  work = input_pipeline.Work(dataset, 'train', flags.FLAGS.size)
  turn = input_pipeline.ours(work, data)
  rng = np.random.default_rng(0)
  for line in sys.stdin:
    places = rng.choice(len(data.source), min(_READ, len(data.source)))
    start = time.thread_time()
    for i in places.tolist():
      data.source[i]
    read_us = 1e6 * (time.thread_time() - start) / len(places)
    answer = {**turn(float(line)), 'read_us': read_us}
    print(json.dumps(answer), flush=True)


def _measure(made: dict[str, str], workers: str) -> list[dict[str, Any]]:
  """Returns a row for each form of the images."""
  options = flags.FLAGS
  # Copies of Parquet files and places in shards go there.
  os.environ['XDG_CACHE_HOME'] = f'{options.output}/cache'
  names = ('size', 'batch', 'threads')
  how = [f'--{name}={options[name].value}' for name in names]
  turns = {}
  with contextlib.ExitStack() as stack:
    for name, dataset in made.items():
      command = [sys.executable, '-m', 'benchmarks.sources', *how]
      command += [f'--workers={workers}', f'--serve={dataset}']
      ask = stack.enter_context(input_pipeline.asking(command))
      turns[name] = functools.partial(_turn, ask)
    answers = input_pipeline.in_alternation(turns)
  values = {
    name: {key: np.array([x[key] for x in said]) for key in said[0]}
    for name, said in answers.items()
  }
  folder = values['folder']
  rows: list[dict[str, Any]] = []
  for name, value in values.items():
    ratio = value['images_s'] / folder['images_s']
    quarters = np.percentile(ratio, (25, 75))
    least = {key: float(value[key].min()) for key in ('cpu_us', 'read_us')}
    row = {
      'images': name,
      'workers': int(workers),
      'images_s': float(np.median(value['images_s'])),
      'slowest': float(value['images_s'].min()),
      'fastest': float(value['images_s'].max()),
      'against_folder': float(np.median(ratio)),
      'quarters': '{:.2f} to {:.2f}'.format(*quarters),
      **least,
      # As a speed: how many images the same processor time makes.
      'cpu_against_folder': float(folder['cpu_us'].min()) / least['cpu_us'],
    }
    rows.append(row)
  return rows


def _turn(ask: Callable[[str], str], seconds: float) -> dict[str, Any]:
  return json.loads(ask(str(seconds)))


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'Unexpected arguments: {argv[1:]}')
  options = flags.FLAGS
  if options.serve:
    options.workers = int(options.workers)
    _serve(options.serve)
    return
  made = copies(options.folder, pathlib.Path(options.output))
  rows = [row for n in options.workers.split(',') for row in _measure(made, n)]
  machine = machine_lib.describe(_PACKAGES)
  harness.report(rows, machine, options.json)


if __name__ == '__main__':
  flags.DEFINE_string('folder', None, 'Folder of images.')
  flags.DEFINE_string('output', '/tmp/sources', 'Folder for the copies.')
  flags.DEFINE_string('workers', '0,2', 'Numbers of worker processes.')
  flags.DEFINE_integer('size', 224, 'Image side, pixels.', 1)
  flags.DEFINE_integer('batch', 128, 'Images a batch.', 1)
  flags.DEFINE_integer('threads', 4, 'Threads of each process; 0: no other.', 0)
  flags.DEFINE_float('seconds', 1.0, 'Duration of a turn.', 0.0)
  flags.DEFINE_integer('turns', 11, 'Turns of each; medians count.', 1)
  flags.DEFINE_string('json', None, 'File for the numbers.')
  flags.DEFINE_string('serve', None, 'Internal: the data set of this process.')
  app.run(main)
