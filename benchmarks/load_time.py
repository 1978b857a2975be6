"""Measures how long weights take to load, and how much memory.

python -m benchmarks.load_time --folder=/tmp/load_time

Random SigLIPs of So400m/14 are written with both towers, for timm the image tower.
Each file is read by a process of its own. `peak` is the memory that reading adds to
the process at most, over the size of the parameters, which become float32. Memory is
what the system cannot read again from files: anonymous pages, swapped or not.
"""

from collections.abc import Iterator, Mapping
import json
import pathlib
import re
import struct
import subprocess
import sys
import threading
import time
from typing import Any
import zipfile

from absl import app
from absl import flags
import jax
import ml_dtypes
import numpy as np

from benchmarks import harness
from benchmarks import machine as machine_lib
from vit_jax import checkpoint
from vit_jax import models
from vit_jax.data import preprocessing
from vit_jax.runtime import files
from vit_jax.weights import big_vision
from vit_jax.weights import families
from vit_jax.weights import record
from vit_jax.weights import to_huggingface
from vit_jax.weights.timm import to_timm

_FOLDER = flags.DEFINE_string('folder', None, 'Where the files are written.')
_DEPTH = flags.DEFINE_integer('depth', 27, 'Blocks of each tower.')
_READ = flags.DEFINE_string('read', None, 'Internal: a file to read.')

_DTYPES = {
  'float32': ('F32', np.float32),
  'bfloat16': ('BF16', ml_dtypes.bfloat16),
}
_TOWER = {
  'hidden_size': 1152,
  'intermediate_size': 4304,
  'num_attention_heads': 16,
}
_SIZE = 384
_GIB = 2**30


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'Unexpected arguments: {argv[1:]}')
  if _READ.value:
    _read(_READ.value)
    return
  folder = pathlib.Path(_FOLDER.value)
  rows = [_measure(name, path) for name, path in _written(folder)]
  harness.report(rows, machine_lib.describe(), flags.FLAGS.json)


def _read(path: str) -> None:
  """Reads weights in this process and prints what it took."""
  before, samples, done = _memory(), [0], threading.Event()

  def sample() -> None:
    while not done.wait(0.01):
      samples.append(_memory())

  watcher = threading.Thread(target=sample)
  watcher.start()
  started = time.perf_counter()
  weights = checkpoint.read(path)
  seconds = time.perf_counter() - started
  done.set()
  watcher.join()
  peak = max(*samples, _memory()) - before
  leaves = jax.tree.leaves(dict(weights.params))
  size = sum(np.asarray(x).nbytes for x in leaves)
  numbers = {'load_s': seconds, 'parameters_gib': size / _GIB}
  print(json.dumps({**numbers, 'peak': peak / size}))


def _memory() -> int:
  """Returns the bytes of this process that are in no file (Linux)."""
  status = pathlib.Path('/proc/self/status').read_text(encoding='utf-8')
  found = dict(re.findall(r'(RssAnon|VmSwap):\s*(\d+) kB', status))
  return 1024 * sum(int(kib) for kib in found.values())


def _measure(name: str, path: pathlib.Path) -> dict[str, Any]:
  """Returns a row of the table for a file, which it deletes."""
  command = [sys.executable, '-m', 'benchmarks.load_time', f'--read={path}']
  result = subprocess.run(
    command, stdout=subprocess.PIPE, check=True, text=True
  )
  file = path / 'model.safetensors' if path.is_dir() else path
  size = file.stat().st_size
  file.unlink()
  numbers = json.loads(result.stdout.splitlines()[-1])
  return {'file': name, 'file_gib': size / _GIB, **numbers}


def _written(folder: pathlib.Path) -> Iterator[tuple[str, pathlib.Path]]:
  """Yields the name and the path of each file when it is written."""
  pair = _siglip()
  exports = {
    'transformers': to_huggingface.export(pair),
    'timm': to_timm.export(pair),
  }
  for library, (arrays, contents) in exports.items():
    for dtype in _DTYPES:
      path = folder / f'{library}_{dtype}'
      path.mkdir(parents=True, exist_ok=True)
      _write_safetensors(arrays, path / 'model.safetensors', dtype)
      for name, content in contents.items():
        files.write_json(content, path / name)
      yield f'{library} {dtype}', path
  path = folder / 'siglip.npz'
  _write_npz(record.flatten(big_vision.from_official(pair.params)), path)
  yield 'npz float32', path


def _siglip() -> record.Weights:
  """Returns a SigLIP whose arrays take no memory."""
  tower = {**_TOWER, 'num_hidden_layers': _DEPTH.value}
  image = {**tower, 'image_size': _SIZE, 'patch_size': 14}
  config = {'vision_config': image, 'text_config': tower}
  model = families.FAMILIES['siglip'].read(config, False)
  model['pp']['size'] = _SIZE
  shapes = models.abstract_params(models.from_config(model), (_SIZE, _SIZE, 3))
  zero = np.zeros((), np.float32)
  return record.Weights(
    params=jax.tree.map(lambda x: np.broadcast_to(zero, x.shape), shapes),
    model=model,
    preprocessing=preprocessing.Preprocessing(size=(_SIZE, _SIZE)),
    loss='sigmoid',
  )


def _random(arrays: Mapping[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
  """Yields random arrays of the same names and shapes."""
  rng = np.random.default_rng(0)
  for name, x in arrays.items():
    yield name, 0.02 * rng.standard_normal(np.shape(x), np.float32)


def _write_safetensors(
  arrays: Mapping[str, Any], path: pathlib.Path, dtype: str
) -> None:
  """Writes random arrays one after the other, so that no memory is needed."""
  name_of_type, numpy_type = _DTYPES[dtype]
  header, end = {}, 0
  for name, x in arrays.items():
    start, end = end, end + np.size(x) * np.dtype(numpy_type).itemsize
    header[name] = {
      'dtype': name_of_type,
      'shape': list(np.shape(x)),
      'data_offsets': [start, end],
    }
  head = json.dumps(header).encode()
  head += b' ' * (-len(head) % 8)
  with open(path, 'wb') as f:
    f.write(struct.pack('<Q', len(head)) + head)
    for _, x in _random(arrays):
      f.write(x.astype(numpy_type).tobytes())


def _write_npz(arrays: Mapping[str, Any], path: pathlib.Path) -> None:
  with zipfile.ZipFile(path, 'w', zipfile.ZIP_STORED) as archive:
    for name, x in _random(arrays):
      with archive.open(f'{name}.npy', 'w', force_zip64=True) as f:
        np.lib.format.write_array(f, x)


if __name__ == '__main__':
  harness.define_flags()
  app.run(main)
