"""Files that are damaged, or made to harm: one clear line, and little memory."""

import json
import pathlib
import random
import resource
import struct
import tarfile
import zipfile
import zlib

import cv2
from golden_files import REPOSITORY
import numpy as np
from processes import call_command
import pytest

from benchmarks import fuzz
from vit_jax import checkpoint
from vit_jax.data import cifar
from vit_jax.data import decoding
from vit_jax.runtime import download
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.training import metrics
from vit_jax.weights import array_files


@pytest.mark.parametrize(
  'name',
  [
    'image .jpg',
    'image .png',
    'image .bmp',
    'image .webp',
    'npz',
    'safetensors',
    'config.json of transformers',
    'config.json of timm',
    'config.json of an artifact',
    'labels.txt',
    '--labels',
    'index.csv',
    'overrides',
    'captions.tsv',
    'captions.jsonl',
    'BERT vocabulary',
    'metrics.jsonl of a run',
    'config.json of a run',
  ],
)
def test_damaged_files_raise_user_errors(name, tmp_path):
  targets = fuzz.targets(tmp_path)
  data, read = targets[name]
  suffix = name.removeprefix('image ') if name.startswith('image') else '.npz'
  path, rng = tmp_path / f'input{suffix}', random.Random(1)
  for _ in range(30):
    path.write_bytes(fuzz.mutate(data, rng))
    try:
      read(path)
    except errors.UserError:
      continue
  assert set(targets) == set(
    test_damaged_files_raise_user_errors.pytestmark[0].args[1]
  )  # None is left out.


def memory():
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def png(width, height):
  """A PNG that says it is this large, and is not."""

  def chunk(kind, content):
    check = struct.pack('>I', zlib.crc32(kind + content))
    return struct.pack('>I', len(content)) + kind + content + check

  header = struct.pack('>IIBBBBB', width, height, 8, 2, 0, 0, 0)
  rows = zlib.compress(bytes(1 << 20))
  return (
    b'\x89PNG\r\n\x1a\n'
    + chunk(b'IHDR', header)
    + chunk(b'IDAT', rows)
    + chunk(b'IEND', b'')
  )


def bmp(width, height):
  _, data = cv2.imencode('.bmp', np.zeros((4, 4, 3), np.uint8))
  data = bytearray(data.tobytes())
  struct.pack_into('<ii', data, 18, width, height)
  return bytes(data)


def jpeg(width, height):
  _, data = cv2.imencode('.jpg', np.zeros((8, 8, 3), np.uint8))
  data = bytearray(data.tobytes())
  struct.pack_into('>HH', data, data.index(b'\xff\xc0') + 5, height, width)
  return bytes(data)


@pytest.mark.parametrize('exif', [False, True])
@pytest.mark.parametrize(
  ('data', 'side'),
  [(png, 100_000), (bmp, 40_000), (bmp, -40_000), (jpeg, 65_000)],
)
def test_images_that_claim_to_be_huge_are_refused(data, side, exif):
  before = memory()
  with pytest.raises(ValueError, match='pixels, more than the'):
    decoding.decode(data(abs(side), side), exif=exif)
  assert memory() - before < 50


def test_images_of_other_formats_are_not_opened():
  image = np.zeros((4, 4, 3), np.uint8)
  for suffix in ('.ppm', '.hdr'):
    data = cv2.imencode(suffix, image)[1].tobytes()
    with pytest.raises(ValueError, match='not a JPEG, PNG'):
      decoding.decode(data)


def test_a_zip_bomb_is_refused(tmp_path):
  path = tmp_path / 'bomb.npz'
  header = b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, "
  with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED, compresslevel=1) as z:
    for i in range(2):
      with z.open(f'{i}.npy', 'w') as f:
        f.write(header)
        for _ in range(200):
          f.write(bytes(1 << 20))
  assert path.stat().st_size < 2 << 20
  before = memory()
  with pytest.raises(errors.UserError, match='would take 41.* bytes of mem'):
    checkpoint.read(path)
  assert memory() - before < 50


def test_arrays_that_claim_to_be_huge_are_refused(tmp_path):
  path = tmp_path / 'x.npz'
  with zipfile.ZipFile(path, 'w') as z, z.open('a.npy', 'w') as f:
    shape = {'descr': '<f4', 'fortran_order': False, 'shape': (1 << 42,)}
    np.lib.format.write_array_header_1_0(f, shape)
  with pytest.raises(errors.UserError, match='cannot be read as an .npz'):
    checkpoint.read(path)
  content = b'{"a":{"dtype":"F32","shape":[99999999999],"data_offsets":[0,8]}}'
  path = tmp_path / 'x.safetensors'
  path.write_bytes(struct.pack('<Q', len(content)) + content + bytes(8))
  with pytest.raises(
    errors.UserError, match='read as a .safetensors: it is damaged'
  ):
    checkpoint.read(path)
  path.write_bytes(struct.pack('<Q', 1 << 62) + b'{' + bytes(99))
  with pytest.raises(
    errors.UserError, match='read as a .safetensors: it is damaged'
  ):
    checkpoint.read(path)


def test_deeply_nested_json_is_refused(tmp_path):
  path = tmp_path / 'config.json'
  path.write_text('{"a":' + '[' * 100_000)
  with pytest.raises(errors.UserError, match='is damaged'):
    files.read_json(path)
  assert metrics.parse(b'[' * 100_000 + b'\n{"step": 1}') == [{'step': 1}]


class Evil:
  """Leaves a file when it is unpickled."""

  def __init__(self, path):
    self.path = path

  def __reduce__(self):
    return pathlib.Path.touch, (self.path,)


def test_nothing_is_unpickled(tmp_path):
  mark = tmp_path / 'mark'
  arrays = {'a': np.array([Evil(mark)], object), 'b': np.zeros(3)}
  np.savez(tmp_path / 'x.npz', **arrays)
  with pytest.raises(errors.UserError, match='holds objects that are not'):
    checkpoint.read(tmp_path / 'x.npz')
  assert not mark.exists()
  words = ('pickle', 'torch.load', 'eval(', 'exec(', 'yaml.load', 'marshal')
  for path in (REPOSITORY / 'vit_jax').rglob('*.py'):
    text = path.read_text()
    found = [w for w in words if f'import {w}' in text or f' {w}(' in text]
    assert not found, path


def test_archives_stay_in_their_folder(tmp_path, monkeypatch):
  # CIFAR's is read in memory: names in it lead nowhere.
  path = tmp_path / 'data' / 'cifar-10-binary.tar.gz'
  path.parent.mkdir()
  names = [f'data_batch_{i}.bin' for i in range(1, 6)] + ['test_batch.bin']
  with tarfile.open(path, 'w:gz') as tar:
    for name in [*names, 'batches.meta.txt', 'evil.sh']:
      file = tmp_path / name
      file.write_bytes(b'a\nb\n' if 'meta' in name else bytes(3073))
      tar.add(file, arcname=f'../../{name}')
      file.unlink()
  cifar.load.cache_clear()
  images = cifar.load('cifar10', path.parent)[0]['test'][0]
  cifar.load.cache_clear()
  assert len(images) == 1
  assert [p.name for p in tmp_path.iterdir()] == ['data']


def test_shards_cannot_be_elsewhere(tmp_path):
  index = {'weight_map': {'a': '../secret.safetensors'}}
  name = 'model.safetensors.index.json'
  (tmp_path / name).write_text(json.dumps(index))
  with pytest.raises(errors.UserError, match='names of files beside it'):
    array_files.read_safetensors(tmp_path)


def test_a_download_that_is_too_long_is_refused(monkeypatch):
  class Response:
    def __enter__(self):
      return self

    def __exit__(self, *error):
      pass

    def read(self, size):
      return bytes(size)

  monkeypatch.setattr(
    download.urllib.request, 'urlopen', lambda url, timeout: Response()
  )
  with pytest.raises(errors.UserError, match='has more than 1000 bytes'):
    download.read('https://example.org/x.jpg', 1000)


@pytest.mark.parametrize(
  'override',
  [
    '--config.batch=1e999',
    '--config.freeze=' + '(' * 5000,
    "--config.freeze=('[',)",
  ],
)
def test_hostile_overrides_give_one_line(override, image_folder, tmp_path):
  result = call_command(
    'train',
    f'--config=tests/run_files/tiny.py:{image_folder}',
    f'--workdir={tmp_path}/run',
    override,
  )
  assert result.returncode == 1
  assert 'Traceback' not in result.stderr
  assert result.stderr.strip().splitlines()[-1].startswith('vit-jax train: ')
  assert not [p for p in tmp_path.glob('run/**/*') if 'checkpoint' in p.stem][
    1:
  ]
