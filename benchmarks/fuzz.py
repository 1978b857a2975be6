"""Feeds damaged and hostile files to everything that reads files.

python -m benchmarks.fuzz --seconds=60 --output=results/fuzz_cpu.json

Good files are cut, their bits flipped, parts of them repeated, zeroed or replaced by
extreme numbers. A reader may return something or raise `errors.UserError` (`ValueError`
where it promises that); anything else is a finding, as is a crash. Each reader has a
process of its own. A finding's input is kept in --keep.
"""

from collections.abc import Callable, Sequence
import hashlib
import json
import multiprocessing
import pathlib
import random
import resource
import shutil
import struct
import tempfile
import time
from typing import Any

from absl import app
from absl import flags
import cv2
import ml_collections
from ml_collections import config_flags
import numpy as np

from vit_jax import checkpoint
from vit_jax.commands import cli
from vit_jax.commands import predict
from vit_jax.configs import common
from vit_jax.configs import validate
from vit_jax.data import captions
from vit_jax.data import decoding
from vit_jax.data.augmentation import transforms
from vit_jax.data.texts import text
from vit_jax.reporting import curves
from vit_jax.reporting import report
from vit_jax.runtime import errors
from vit_jax.training import start
from vit_jax.weights import released

_ROOT = pathlib.Path(__file__).parents[1]
_GOLDEN = _ROOT / 'tests' / 'golden'
_EXTREME = (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 20, 0xFFFFFFFE)

Read = Callable[[pathlib.Path], object]


def mutate(original: bytes, rng: random.Random) -> bytes:
  """Returns a copy with up to four kinds of damage."""
  data = bytearray(original)
  for _ in range(rng.randint(1, 4)):
    if not data:
      break
    i = rng.randrange(len(data))
    # Headers, at the start or the end, are damaged as often as the rest.
    i = rng.choice((i, min(i, rng.randrange(200)), max(i, len(data) - 200)))
    n = rng.choice((1, 2, 4, 16, 256, 4096))
    match rng.randrange(7):
      case 0:
        del data[i:]
      case 1:
        data[i] ^= 1 << rng.randrange(8)
      case 2:
        data[i : i + n] = bytes(n)
      case 3:
        data[i : i + n] = rng.randbytes(n)
      case 4:
        data[i:i] = data[i : i + n] * rng.choice((1, 2, 50))
      case 5:
        number = rng.choice(_EXTREME)
        data[i : i + 4] = struct.pack(rng.choice('<>') + 'I', number)
      case 6:
        digits = str(rng.choice((-1, 0, 10**9, 10**30, 'NaN', '1e999')))
        data[i : i + 1] = digits.encode()
  return bytes(data)


def _image(suffix: str) -> bytes:
  rng = np.random.default_rng(0)
  image = rng.integers(0, 256, (24, 31, 3), np.uint8)
  return cv2.imencode(suffix, image)[1].tobytes()


def _decode(path: pathlib.Path) -> None:
  data = path.read_bytes()
  for exif in (False, True):
    try:
      image = decoding.decode(data, exif=exif)
    except ValueError:
      continue
    transforms.stack([transforms.eval_image(image, (16, 16), 20)])


def _in_folder(
  name: str,
  folder: pathlib.Path,
  read_folder: Callable[[pathlib.Path], Any] = checkpoint.read,
) -> tuple[bytes, Read]:
  """Returns a file of a folder, and what reads the folder with another file."""

  def read(path: pathlib.Path) -> None:
    with tempfile.TemporaryDirectory() as other:
      copy = pathlib.Path(other) / 'copy'
      shutil.copytree(folder, copy)
      shutil.copyfile(path, copy / name)
      read_folder(copy)

  return (folder / name).read_bytes(), read


def _read_run(workdir: pathlib.Path) -> None:
  curves.panels(curves.read(workdir))
  report.of_workdir(str(workdir))


def _make_run(workdir: pathlib.Path) -> None:
  """Writes the files of a run that the report of a run reads."""
  config = common.with_model(common.get_config(), 'ViT-Mini_8')
  config.dataset = 'digits'
  workdir.mkdir()
  (workdir / 'config.json').write_text(json.dumps(start.plain(config)))
  (workdir / 'metrics.jsonl').write_bytes(
    b'{"step": 1, "train_loss": 0.5, "lr": 1e-3}\n' * 3
  )


def _overrides(path: pathlib.Path) -> None:
  values = flags.FlagValues()
  config = common.get_config()
  holder = config_flags.DEFINE_config_dict('config', config, flag_values=values)
  lines = path.read_bytes().decode('utf-8', 'replace').split('\n')
  try:
    values(['program', *lines])
  except (*cli.REFUSALS, flags.Error):
    return
  validate.validate(ml_collections.ConfigDict(holder.value))


def _index(path: pathlib.Path) -> None:
  with tempfile.TemporaryDirectory() as folder:
    shutil.copyfile(path, pathlib.Path(folder) / 'index.csv')
    released.best_augreg('R_Ti_16', folder)


def _captions(name: str) -> Read:
  def read(path: pathlib.Path) -> None:
    with tempfile.TemporaryDirectory() as name_:
      folder = pathlib.Path(name_) / 'train'
      folder.mkdir()
      shutil.copyfile(path, folder / name)
      source = captions.open_captions(folder.parent, 'train')
      for i in range(min(len(source), 3)):
        try:
          source[i]
        except OSError:  # The image does not exist.
          continue

  return read


def _vocabulary(kind: str) -> Read:
  def read(path: pathlib.Path) -> None:
    text.get_tokenizer(kind, str(path), 16)(['a photo of a cat'])

  return read


def targets(root: pathlib.Path) -> dict[str, tuple[bytes, Read]]:
  """Returns by name the bytes of a good file and its reader."""
  artifact, hf = root / 'artifact', _GOLDEN / 'hf_vit'
  weights = checkpoint.read(hf)
  from vit_jax.weights import artifact as artifact_lib

  artifact_lib.save(artifact, weights)
  npz = (_GOLDEN / 'vit_token.npz').read_bytes()
  rows = 'filename,ds,final_val,model\nR_Ti_16-i21k-x,i21k,0.5,R_Ti_16\n'
  overrides = '\n'.join(
    f'--config.{name}={value}'
    for name, value in {
      'batch': 8,
      'base_lr': 0.1,
      'pp.crop': '(16, 24)',
      'freeze': "('a',)",
      'optimizer': 'sgd',
      'mesh.data': -1,
      'evaluators': "('knn',)",
    }.items()
  ).encode()
  run = root / 'run'
  _make_run(run)
  jsonl = b'{"image": "a.png", "captions": ["a cat", "a dog"]}\n' * 2
  vocabulary = b'[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nphoto\nof\ncat\n'
  labels = '\n'.join(weights.class_names).encode()
  count = len(weights.class_names)
  return {
    **{
      f'image {suffix}': (_image(suffix), _decode)
      for suffix in ('.jpg', '.png', '.bmp', '.webp')
    },
    'npz': (npz, checkpoint.read),
    'safetensors': _in_folder('model.safetensors', hf),
    'config.json of transformers': _in_folder('config.json', hf),
    'config.json of timm': _in_folder('config.json', _GOLDEN / 'timm_vit'),
    'config.json of an artifact': _in_folder('config.json', artifact),
    'labels.txt': _in_folder('labels.txt', artifact),
    '--labels': (labels, lambda path: predict.read_labels(str(path), count)),
    'index.csv': (rows.encode(), _index),
    'overrides': (overrides, _overrides),
    'captions.tsv': (
      b'a.png\ta cat\nb.png\ta dog\n',
      _captions('captions.tsv'),
    ),
    'captions.jsonl': (jsonl, _captions('captions.jsonl')),
    'BERT vocabulary': (vocabulary, _vocabulary('bert')),
    **{
      f'{name} of a run': _in_folder(name, run, _read_run)
      for name in ('metrics.jsonl', 'config.json')
    },
  }


def _fuzz(name: str, seconds: float, seed: int, keep: str, queue) -> None:
  """Tries inputs on one reader, in a process of its own."""
  with tempfile.TemporaryDirectory() as folder:
    root = pathlib.Path(folder)
    data, read = targets(root)[name]
    path = root / ('input' + (name[6:] if name.startswith('image') else '.npz'))
    rng, tried, findings = random.Random(seed), 0, {}
    path.write_bytes(data)
    if name not in ('captions.tsv', 'captions.jsonl'):
      read(path)  # The good file is read.
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    end = time.time() + seconds
    while time.time() < end:
      bad = mutate(data, rng)
      path.write_bytes(bad)
      (pathlib.Path(keep) / 'last').write_bytes(bad)  # In case it crashes.
      tried += 1
      try:
        read(path)
      except errors.UserError:
        continue
      except Exception as e:
        key = f'{type(e).__name__}: {str(e)[:100]}'
        if key not in findings:
          stem = hashlib.sha256(bad).hexdigest()[:12]
          (pathlib.Path(keep) / stem).write_bytes(bad)
          findings[key] = f'{name}, {stem}'
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used
    queue.put({'tried': tried, 'findings': findings, 'more_mib': more // 1024})


def fuzz(name: str, seconds: float, seed: int, keep: str) -> dict:
  """Returns how many inputs one reader was given, and its findings."""
  context = multiprocessing.get_context('spawn')
  queue = context.Queue()
  process = context.Process(
    target=_fuzz, args=(name, seconds, seed, keep, queue)
  )
  began = time.time()
  process.start()
  while process.is_alive() and queue.empty():
    time.sleep(0.1)
    if time.time() > began + seconds + 300:
      process.kill()
  row = {'tried': 0, 'findings': {'crash': f'exit code {process.exitcode}'}}
  if process.is_alive() or not queue.empty():
    row = queue.get()
  process.join()
  return {**row, 'seconds': round(time.time() - began, 1)}


def main(argv: Sequence[str]) -> None:
  del argv
  options = flags.FLAGS
  pathlib.Path(options.keep).mkdir(parents=True, exist_ok=True)
  with tempfile.TemporaryDirectory() as folder:
    names = list(targets(pathlib.Path(folder)))
  rows = {}
  for name in names:
    if options.only and options.only not in name:
      continue
    rows[name] = fuzz(name, options.seconds, options.seed, options.keep)
    print(f'{name}: {rows[name]}', flush=True)
  if options.output:
    text = json.dumps(rows, indent=1)
    pathlib.Path(options.output).write_text(text + '\n')


if __name__ == '__main__':
  flags.DEFINE_float('seconds', 60, 'For each reader.')
  flags.DEFINE_integer('seed', 0, 'Seeds the damage.')
  flags.DEFINE_string('only', '', 'Readers with this in their name.')
  flags.DEFINE_string('keep', '/tmp/fuzz', 'Folder for what was found.')
  flags.DEFINE_string('output', '', 'JSON file.')
  app.run(main)
