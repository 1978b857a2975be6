"""What must hold of every combination of settings.

`check` trains a row of `pairs` for three steps on a tiny model, resumes it once
and uses what it leaves. Run as a program, with the rows as JSON, it does so on
eight devices.
"""

from collections.abc import Iterator, Mapping
import contextlib
import json
import pathlib
import shutil
import sys
import traceback
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache
import numpy as np
import pairs

import vit_jax
from vit_jax import checkpoint
from vit_jax import train
from vit_jax.data import sources
from vit_jax.runtime import errors
from vit_jax.training import evaluate
from vit_jax.weights import formats


@contextlib.contextmanager
def compiled_once(folder: pathlib.Path) -> Iterator[None]:
  """Keeps compiled programs: a resumed run has those of the first one."""
  settings = {
    'jax_compilation_cache_dir': str(folder),
    'jax_persistent_cache_min_compile_time_secs': 0.0,
    'jax_persistent_cache_min_entry_size_bytes': -1,
  }
  before = {name: getattr(jax.config, name) for name in settings}
  try:
    for name, value in settings.items():
      jax.config.update(name, value)
    yield
  finally:
    for name, value in before.items():
      jax.config.update(name, value)
    compilation_cache.reset_cache()


def _arrays(folder: pathlib.Path) -> dict[str, np.ndarray]:
  with np.load(folder / 'model.npz') as arrays:
    return dict(arrays)


def _assert_equal(got: Mapping[str, Any], want: Mapping[str, Any], what: str):
  assert got.keys() == want.keys(), what
  for key in want:
    np.testing.assert_array_equal(got[key], want[key], f'{what}: {key}')


def _probabilities(path: pathlib.Path, source: sources.Source) -> np.ndarray:
  model = vit_jax.load(path, batch_size=16, on_bad_image='skip')
  return np.stack([row for _, row in model.probabilities(source)])


def check(row: pairs.Row, folder: pathlib.Path, root: pathlib.Path) -> None:
  """Trains, resumes and uses a row, below the empty folder `root`."""
  config = pairs.make_config(row, folder)
  state = train.train_and_evaluate(config, str(root / 'whole'))
  assert int(state.step) == pairs.STEPS
  whole = root / 'whole'
  arrays = _arrays(whole / 'artifact')
  assert all(np.all(np.isfinite(x)) for x in arrays.values())

  _check_frozen(row, whole, arrays)
  _check_resume(config, whole, root / 'resumed', row)
  recorded = json.loads((whole / 'artifact' / 'config.json').read_text())
  recorded = recorded['info']['metrics']
  again = evaluate.evaluate(config, str(whole))
  for key in ('accuracy_test', 'loss_test', 'examples_test'):
    np.testing.assert_allclose(again[key], recorded[key], rtol=1e-5)

  source = sources.get_source(config.dataset, config.pp.test)
  got = _probabilities(whole / 'artifact', source)
  np.testing.assert_array_equal(
    got, _probabilities(whole, source), 'the workdir predicts otherwise'
  )
  temperature = checkpoint.read(whole / 'artifact').temperature
  assert (temperature != 1) == (
    row['holdout'] == 'some' and row['loss'] == 'softmax'
  )
  _check_metrics(row, got, source, recorded, temperature)
  _check_converted(row, whole / 'artifact', got, source, root)
  if config.ema_decay:
    average = _arrays(whole / 'artifact_ema')
    assert any(np.any(average[k] != arrays[k]) for k in arrays)


def _check_frozen(
  row: pairs.Row, whole: pathlib.Path, arrays: Mapping[str, Any]
):
  first = checkpoint.read(whole / 'checkpoints' / '1').params
  kernel = next(k for k in arrays if k in ('embedding/kernel', 'stem/kernel'))
  module = kernel.split('/')[0]
  same = np.array_equal(first[module]['kernel'], arrays[kernel])
  is_frozen = row['stages'] == 'frozen' or row['trained'] == 'lora'
  assert same == is_frozen, f'{kernel} is frozen: {same}'


def _check_resume(
  config, whole: pathlib.Path, path: pathlib.Path, row: pairs.Row
):
  """A run cut after each of its steps ends with the same bits."""
  step = 1 + (len(row['family']) % 2)  # Either is in some row with any setting.
  path.mkdir()
  for file in ('config.json', 'dataset.json', 'labels.txt', 'metrics.jsonl'):
    shutil.copy(whole / file, path / file)
  for number in range(1, step + 1):
    place = f'checkpoints/{number}'
    shutil.copytree(whole / place, path / place)
  train.train_and_evaluate(config, str(path))
  for name in ('artifact', 'artifact_ema'):
    if (whole / name).exists():
      _assert_equal(_arrays(path / name), _arrays(whole / name), name)


def _check_metrics(row, probabilities, source, recorded, temperature) -> None:
  """What predicting gives has the accuracy and loss that training logged."""
  labels = np.array([source[i]['label'] for i in range(len(source))])
  if row['data'] == 'bad files':
    names = [source[i]['name'] for i in range(len(source))]
    labels = labels[[not n.endswith('class 0/0.png') for n in names]]
  assert recorded['examples_test'] == len(labels) == len(probabilities)
  accuracy = np.mean(np.argmax(probabilities, -1) == labels)
  # Raw arrays are resized by another program, so near ties may turn.
  slack = 1.5 / len(labels) if row['data'] == 'arrays' else 1e-6
  assert abs(accuracy - recorded['accuracy_test']) <= slack
  if row['loss'] == 'softmax':
    logits = temperature * np.log(probabilities)
    logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
    loss = -np.mean(logits[np.arange(len(labels)), labels])
    np.testing.assert_allclose(loss, recorded['loss_test'], rtol=2e-2)


def _check_converted(row, artifact, want, source, root) -> None:
  """Formats of other libraries keep what is needed to predict the same."""
  for to in ('huggingface', 'timm'):
    path = root / to
    try:
      formats.convert(checkpoint.read(artifact), str(path), to)
    except errors.UserError:
      can = {'huggingface': ('token',), 'timm': ('token', 'gap')}
      has_pre_logits = row['family'] == 'token' and row['start'] != 'pretrained'
      if row['family'] in can[to] and not has_pre_logits:
        raise
      continue
    np.testing.assert_allclose(
      _probabilities(path, source), want, atol=1e-5, err_msg=to
    )


def main(rows: str, folder: str, root: str) -> None:
  """Checks rows on eight devices; prints what failed and exits with 1."""
  failed = {}
  with compiled_once(pathlib.Path(root) / 'programs'):
    for number, row in json.loads(pathlib.Path(rows).read_text()):
      path = pathlib.Path(root) / str(number)
      path.mkdir()
      try:
        check(row, pathlib.Path(folder), path)
      except Exception:
        failed[number] = traceback.format_exc()
  for number, trace in failed.items():
    print(f'Row {number}: {pairs.name(pairs.ROWS[number])}\n{trace}')
  sys.exit(len(failed) > 0)


if __name__ == '__main__':
  jax.config.update('jax_num_cpu_devices', 8)
  main(*sys.argv[1:])
