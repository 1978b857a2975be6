"""A killed run leaves whole files or none."""

import ast
import os
import sys

from golden_files import REPOSITORY
import numpy as np
import pytest
from runs import tiny

from vit_jax.commands import train as train_command
from vit_jax.reporting import plot
from vit_jax.runtime import files
from vit_jax.training import evaluate
from vit_jax.weights import array_files

# Grow line by line: a kill may cut the last one, which readers leave out.
_APPENDED = ('metrics.jsonl', 'events.out.tfevents')

_opened = None  # Paths opened for writing; None outside of the fixture.


def _audit(event, args):
  if event == 'open' and _opened is not None and isinstance(args[0], str):
    _, mode, flags = args
    if (mode and set(mode) & set('wax+')) or (flags or 0) & os.O_ACCMODE:
      _opened.append(os.path.abspath(args[0]))


@pytest.fixture
def opened(monkeypatch):
  """Returns a list of all paths that Python opens for writing."""
  if not hasattr(sys, '_vit_jax_audits'):  # A hook cannot be removed.
    sys.addaudithook(_audit)
    sys._vit_jax_audits = True
  monkeypatch.setattr(sys.modules[__name__], '_opened', [])
  return _opened


@pytest.mark.slow
def test_run_writes_no_file_under_its_final_name(
  image_folder, tmp_path, opened
):
  config = tiny(image_folder)
  config.total_steps, config.warmup_steps = 2, 1
  config.eval_every, config.checkpoint_every = 2, 1
  config.report = True
  train_command.train_and_report(config, str(tmp_path))
  evaluate.evaluate(config, str(tmp_path))
  left = [p for p in tmp_path.rglob('*') if p.is_file()]
  names = {p.name for p in left}
  assert {
    'config.json',
    'dataset.json',
    'environment.json',
    'evaluation.json',
    'labels.txt',
    'metrics.jsonl',
    'model.npz',
    'report.html',
  } <= names
  assert str(tmp_path / 'metrics.jsonl') in opened  # The hook works.
  in_place = {
    str(p.relative_to(tmp_path))
    for p in left
    if str(p) in opened and not p.name.startswith(_APPENDED)
  }
  assert in_place <= {'.lock'}
  assert not [name for name in names if name.endswith('.tmp')]


_WRITERS = {
  'a.json': lambda n, path: files.write_json({'a': n}, path),
  'a.txt': lambda n, path: files.write_lines([str(n)], path),
  'a.npz': lambda n, path: array_files.write_npz({'a': n}, path),
  'a.safetensors': lambda n, path: array_files.write_safetensors(
    {'a': [n]}, path
  ),
  'a.png': lambda n, path: plot.save(
    plot.points(np.ones((n, 2)), x='', y=''), path
  ),
}


@pytest.mark.parametrize('name', _WRITERS)
@pytest.mark.parametrize('function', ['fsync', 'replace'])
def test_killed_write_keeps_old_file(tmp_path, monkeypatch, name, function):
  class KillError(BaseException):
    pass

  def kill(*args):
    raise KillError

  path, write = tmp_path / name, _WRITERS[name]
  write(1, path)
  before = path.read_bytes()
  with monkeypatch.context() as patch:
    patch.setattr(os, function, kill)
    with pytest.raises(KillError):
      write(2, path)
  assert path.read_bytes() == before
  assert list(tmp_path.iterdir()) == [path]
  write(2, path)
  assert path.read_bytes() != before


# Modules that may open a final name: they append, write into a folder that is
# renamed as a whole, or only check whether they can write.
_ALLOWED = {
  'commands/dispatch.py',  # The cache of completion, by a temporary file.
  'weights/programs.py',  # Within `files.replaced_file`.
  'evaluation/feature_files.py',  # Within `files.replaced_file`.
  'evaluation/prediction_files.py',  # Within `files.replaced_file`.
  'runtime/hosts.py',  # An empty file.
  'training/metrics.py',  # metrics.jsonl grows.
  'runtime/storage.py',  # Where `write_bytes` is, and copies for reading.
  'weights/array_files.py',  # Within `files.replaced_file`.
}


def test_modules_write_through_storage():
  found = set()
  root = REPOSITORY / 'vit_jax'
  for path in root.rglob('*.py'):
    for node in ast.walk(ast.parse(path.read_text())):
      if not isinstance(node, ast.Call):
        continue
      name = getattr(node.func, 'attr', getattr(node.func, 'id', ''))
      modes = [a.value for a in node.args[1:2] if isinstance(a, ast.Constant)]
      writes = name in ('write_bytes', 'write_text') and isinstance(
        node.func, ast.Attribute
      )
      writes &= ast.unparse(node.func).partition('.')[0] not in (
        'files',
        'storage',
      )
      opens = name == 'open' and set(str(modes[:1])) & set('wax')
      if writes or (opens and 'archive' not in ast.unparse(node.func)):
        found.add(path.relative_to(root).as_posix())
  assert found == _ALLOWED
