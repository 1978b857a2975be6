"""`vit-jax`: it finds the commands, and shells complete them."""

import pathlib
import re
import shutil
import subprocess
import sys

from conftest import REPOSITORY
from conftest import run
import pytest

from vit_jax import command


def test_every_command_line_is_a_command():
  entries = {
    path.relative_to(REPOSITORY / 'vit_jax').with_suffix('').as_posix()
    for path in (REPOSITORY / 'vit_jax').rglob('*.py')
    if "if __name__ == '__main__':" in path.read_text()
  }
  found = {command._path(name) for name in command.COMMANDS}
  root = REPOSITORY / 'vit_jax'
  paths = {path.relative_to(root).with_suffix('').as_posix() for path in found}
  assert entries - paths == {'command', 'train'}  # Itself, and what calls main.
  assert all(path.is_file() for path in found)


def test_help_tells_what_each_is_for():
  result = run('vit_jax.command', '--help')
  assert result.returncode == 0
  for name in command.COMMANDS:
    [line] = re.findall(rf'^  {name} .*$', result.stdout, re.MULTILINE)
    assert command.summary(name) in line
    assert len(command.summary(name)) > 20
  assert run('vit_jax.command').stdout == result.stdout


def test_a_command_gets_its_arguments():
  result = run('vit_jax.command', 'models_list', 'LiT-B16B')
  assert result.returncode == 0, result.stderr
  assert 'LiT-B16B_2' in result.stdout
  result = run('vit_jax.command', 'models_list', 'nothing like it')
  assert result.returncode == 1
  assert "vit_jax.models_list: No name has 'nothing" in result.stderr


def test_no_command():
  result = run('vit_jax.command', 'evalute')
  assert result.returncode == 1
  assert "no command 'evalute'. Did you mean evaluate?" in result.stderr


# Those that share flags in one way or another.
@pytest.mark.parametrize('name', ['export', 'zero_shot', 'sweep'])
def test_the_flags_of_completion_are_those_there_are(name):
  names = command.flag_names(name)
  ours = {x[2:-1] for x in names if not x.startswith('--config.')}
  text = run(f'vit_jax.{name}', '--helpxml').stdout
  flags = re.findall(r'<file>(.*?)</file>\s*<name>(.*?)</name>', text)
  defined = {flag for file, flag in flags if 'vit_jax' in file}
  assert ours == defined
  assert ('--config.base_lr=' in names) == ('config' in ours)
  assert ('--config.pp.crop=' in names) == ('config' in ours)


@pytest.mark.parametrize(
  ('words', 'want'),
  [
    (['vit-jax', 'fea'], ['features']),
    (['vit-jax', 'predict', '--top'], ['--top_k=']),
    (['vit-jax', 'train', '--config.base'], ['--config.base_lr=']),
    (['vit-jax', 'train', 'configs/b'], []),  # Bash goes on with files.
  ],
)
def test_bash_completes(words, want, tmp_path):
  if not shutil.which('bash'):
    pytest.skip('needs bash')
  (tmp_path / 'vit-jax').write_text(
    f'#!/bin/sh\nexec {sys.executable} -m vit_jax.command "$@"\n'
  )
  (tmp_path / 'vit-jax').chmod(0o755)
  script = run('vit_jax.command', '--completion=bash').stdout
  quoted = ' '.join(f"'{word}'" for word in words)
  result = subprocess.run(
    [
      'bash',
      '-c',
      f'{script}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _vit_jax;'
      ' echo "${COMPREPLY[@]}"',
    ],
    capture_output=True,
    text=True,
    check=True,
    cwd=REPOSITORY,
    env={'PATH': f'{tmp_path}:/usr/bin:/bin'},
  )
  assert result.stdout.split() == want
  assert not result.stderr
  assert pathlib.Path(command.__file__).is_file()
