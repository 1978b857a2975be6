"""The notebooks run with small settings, and contain no paths of a machine."""

import json
import sys

from golden_files import REPOSITORY
from processes import HANG_SECONDS
from processes import start_command
import pytest

NOTEBOOKS = sorted((REPOSITORY / 'notebooks').glob('*.ipynb'))


def cells(path):
  return json.loads(path.read_text(encoding='utf-8'))['cells']


def script(path, **parameters):
  """Returns the code of a notebook, with other values of its parameters."""
  code = []
  for cell in cells(path):
    if cell['cell_type'] == 'code':
      lines = [x for x in cell['source'] if not x.startswith('%')]
      code.append(''.join(lines))
      if 'parameters' in cell['metadata'].get('tags', ()):
        code += [f'{name} = {value!r}' for name, value in parameters.items()]
        assert all(name in code[-1 - len(parameters)] for name in parameters)
  return '\n\n'.join(code)


def execute(path, code):
  process = start_command(
    sys.executable, '-c', code, MPLBACKEND='Agg', XLA_FLAGS=''
  )
  out, err = process.communicate(timeout=HANG_SECONDS)
  assert process.returncode == 0, f'{path.name}: {err[-2000:]}'
  return out


def small(name, tmp_path, request):
  """Returns parameters of a run of seconds."""
  if name == 'fine_tune':
    return {'EPOCHS': 0.1, 'WORKDIR': str(tmp_path / 'run')}
  if name == 'lit_zero_shot':
    _, workdir = request.getfixturevalue('lit_run')
    return {
      'MODEL': str(workdir / 'artifact'),
      'LABELS': ['blue', 'green', 'red'],
    }
  return {}


@pytest.mark.slow
@pytest.mark.parametrize('path', NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path, tmp_path, request):
  out = execute(path, script(path, **small(path.stem, tmp_path, request)))
  if path.stem == 'model_step_by_step':
    assert 'largest difference of logits' in out
  if path.stem == 'checkpoints':
    assert 'the same' in out


def test_there_are_four_notebooks():
  assert len(NOTEBOOKS) == 4


@pytest.mark.parametrize('path', NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_without_errors_and_small(path):
  assert path.stat().st_size < 400_000
  for cell in cells(path):
    for output in cell.get('outputs', ()):
      assert output['output_type'] != 'error'
      assert output.get('name') != 'stderr'
  assert str(REPOSITORY) not in path.read_text()
