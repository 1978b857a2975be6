"""The notebooks run with small settings, and contain no paths of a machine."""

import json
import pathlib
import sys

from golden_files import REPOSITORY
from processes import HANG_SECONDS
from processes import start_command
import pytest

BIN = pathlib.Path(sys.executable).parent
NOTEBOOKS = sorted((REPOSITORY / 'notebooks').glob('*.ipynb'))


def cells(path):
  return json.loads(path.read_text(encoding='utf-8'))['cells']


def script(path, **parameters):
  """Returns the code of a notebook, with other values of its parameters."""
  code = []
  for cell in cells(path):
    if cell['cell_type'] == 'code':
      code.append(''.join(map(as_python, cell['source'])))
      if 'parameters' in cell['metadata'].get('tags', ()):
        code += [f'{name} = {value!r}' for name, value in parameters.items()]
        assert all(name in code[-1 - len(parameters)] for name in parameters)
  return '\n\n'.join(code)


def as_python(line):
  """Returns a line of a notebook without magic; commands find the program."""
  if line.startswith('%'):
    return ''
  if line.startswith('!'):
    shell = f'export PATH={BIN}:$PATH; {line[1:].rstrip()}'
    return f"__import__('subprocess').run(f{shell!r}, shell=True, check=True)\n"
  return line


def execute(path, code, flags):
  process = start_command(
    sys.executable, '-c', code, MPLBACKEND='Agg', XLA_FLAGS=flags
  )
  out, err = process.communicate(timeout=HANG_SECONDS)
  assert process.returncode == 0, f'{path.name}: {err[-2000:]}'
  return out


def small(name, tmp_path, request):
  """Returns parameters of a run of seconds."""
  if name in ('fine_tune', 'colab'):
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
  code = script(path, **small(path.stem, tmp_path, request))
  # Kaggle's TPU v5e has eight devices.
  flags = '--xla_force_host_platform_device_count=8'
  out = execute(path, code, flags if path.stem == 'colab' else '')
  if path.stem == 'model_step_by_step':
    assert 'largest difference of logits' in out
  if path.stem == 'checkpoints':
    assert 'the same' in out
  if path.stem == 'colab':
    assert '8 x cpu' in out
    assert (tmp_path / 'run' / 'artifact.zip').is_file()
    assert (tmp_path / 'run' / 'predictions.csv').is_file()


def test_there_are_five_notebooks():
  assert len(NOTEBOOKS) == 5


@pytest.mark.parametrize('path', NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_without_errors_and_small(path):
  assert path.stat().st_size < 400_000
  for cell in cells(path):
    for output in cell.get('outputs', ()):
      assert output['output_type'] != 'error'
      assert output.get('name') != 'stderr'
  assert str(REPOSITORY) not in path.read_text()
