"""`vit-jax`: each command answers a user's mistakes, shells complete them.

The tests are over `dispatch.COMMANDS`: a new command is tested by being there.
"""

import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

from absl.testing import flagsaver
from golden_files import REPOSITORY
from processes import call_command
from processes import run
import pytest

import vit_jax
from vit_jax.commands import dispatch
from vit_jax.configs import common


def assert_refused(result, message=''):
  """Checks that a command ended with one line that says what is wrong."""
  assert result.returncode == 1, result
  assert not result.stdout
  [line] = result.stderr.splitlines()
  assert line.startswith(('vit-jax: ', 'vit-jax '))
  assert re.search(message, line), line


def test_each_command_has_a_file_and_python_runs_two_modules():
  root = REPOSITORY / 'vit_jax'
  entries = {
    path.relative_to(root).as_posix()
    for path in root.rglob('*.py')
    if "if __name__ == '__main__':" in path.read_text()
  }
  assert entries == {'__main__.py', 'main.py'}
  with_flags = {
    path.stem
    for path in (root / 'commands').glob('*.py')
    if '\ndef main(argv' in path.read_text()
  }
  assert with_flags == set(dispatch.COMMANDS)


@pytest.mark.parametrize('words', [(), ('--help',), ('-h',), ('help',)])
def test_help_lists_the_commands(words):
  result = call_command(*words)
  assert result.returncode == 0
  for name in dispatch.COMMANDS:
    [line] = re.findall(rf'^  {name} .*$', result.stdout, re.MULTILINE)
    assert dispatch.summary(name) in line
    assert len(dispatch.summary(name)) > 20


@functools.cache
def own_flags(name):
  """Returns the flags of a command as shells complete them."""
  words = call_command('--complete', name).stdout.split()
  assert '--help' in words
  return [w for w in words if not w.startswith('--config.')]


@pytest.mark.parametrize('name', dispatch.COMMANDS)
def test_help_of_a_command_prints_its_flags_and_exits_with_0(name):
  result = call_command(name, '--help')
  assert (result.returncode, result.stderr) == (0, '')
  assert dispatch.summary(name) in result.stdout
  for word in {*own_flags(name)} - {'--help'}:
    stem = word.removeprefix('--').removesuffix('=')
    assert re.search(rf'--(\[no\])?{stem}:', result.stdout), word


@pytest.mark.parametrize('name', ['train', 'sweep', 'plan', 'show_batch'])
def test_help_shows_the_values_of_settings(name):
  lines = [
    line.strip() for line in call_command(name, '--help').stdout.split('\n')
  ]
  assert 'optimizer: sgd, adamw, lamb, adafactor, muon' in lines
  assert 'base_lr: at least 0.0' in lines
  assert 'pp.channels: from 1 to 512' in lines
  assert 'report: True, False' in lines
  assert "adapt_channels: '', sum, repeat" in lines
  for setting in common.RULES:
    assert any(line.startswith(f'{setting}: ') for line in lines), setting


@pytest.mark.parametrize('flag', ['-h', '--helpshort', '--helpfull'])
def test_other_kinds_of_help_exit_with_0(flag):
  result = call_command('predict', flag)
  assert (result.returncode, result.stderr) == (0, '')
  assert '--model:' in result.stdout


@pytest.mark.parametrize('name', ['', *dispatch.COMMANDS])
def test_version(name):
  result = call_command(*filter(None, [name]), '--version')
  assert (result.returncode, result.stderr) == (0, '')
  assert result.stdout == f'{vit_jax.__version__}\n'


@pytest.mark.parametrize('name', dispatch.COMMANDS)
def test_an_unknown_flag_is_refused(name):
  assert_refused(call_command(name, '--flga=1'), "command line flag 'flga'")


@pytest.mark.parametrize('name', dispatch.COMMANDS)
def test_a_misspelt_flag_is_corrected(name):
  word = next(w for w in own_flags(name) if w not in ('--help', '--version'))
  wrong = f'{word.removesuffix("=")[:-1]}=1'
  right = word.removeprefix('--').removesuffix('=')
  assert_refused(call_command(name, wrong), f'Did you mean.* {right}')


# Commands that have work to do without any argument.
COMPLETE_ALONE = ('doctor', 'models')


@pytest.mark.parametrize(
  'name', sorted({*dispatch.COMMANDS} - {*COMPLETE_ALONE})
)
def test_a_command_without_arguments_says_what_it_needs(name):
  assert_refused(call_command(name), r'must be given|Give|Name')


@pytest.mark.parametrize('name', dispatch.COMMANDS)
def test_a_flag_without_its_value_is_refused(name):
  words = [w for w in own_flags(name) if w.endswith('=')]
  if words:
    word = words[0].removesuffix('=')
    assert_refused(call_command(name, word), f'Missing value for flag {word}')


def test_words_where_flags_belong_are_refused():
  for words in (
    ['train', 'configs/digits.py'],
    ['doctor', 'extra'],
    ['models', 'ViT', 'extra'],
  ):
    required = ['--config=configs/digits.py', '--workdir=/nowhere/x']
    result = call_command(*words, *(required if words[0] == 'train' else []))
    assert_refused(result, words[-1])


def test_a_flag_given_twice_counts_once_with_a_warning():
  result = call_command('predict', '--model=/a', '--model=/b', 'x.jpg')
  assert '--model is given 2 times; the last one counts.' in result.stderr
  assert result.returncode == 1


def test_a_command_gets_its_arguments():
  result = run('vit_jax', 'models', 'LiT-B16B')
  assert result.returncode == 0, result.stderr
  assert 'LiT-B16B_2' in result.stdout
  result = call_command('models', 'nothing like it')
  assert_refused(result, "vit-jax models: No name has 'nothing")


@pytest.mark.parametrize(
  'word, hint',
  [
    ('evalute', ' Did you mean evaluate?'),
    ('zero-shot', ' Did you mean zero_shot?'),
    ('--verbose', ''),
    ('--completion=tcsh', ' bash, zsh and fish'),
    ('xyz', ' See vit-jax --help'),
  ],
)
def test_an_unknown_command_is_refused(word, hint):
  assert_refused(call_command(word), hint)


@pytest.mark.parametrize('name', dispatch.COMMANDS)
def test_completion_has_each_flag_and_setting(name, monkeypatch, tmp_path):
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
  words = call_command('--complete', name).stdout.split()
  text = call_command(name, '--helpxml').stdout
  flags = re.findall(r'<file>(.*?)</file>\s*<name>(.*?)</name>', text)
  defined = {flag for file, flag in flags if 'vit_jax' in file}
  ours = {w.strip('-=') for w in words if not w.startswith('--config.')}
  assert ours == {*defined, 'help', 'version'} - {'h'}
  settings = {w for w in words if w.startswith('--config.')}
  if 'config' not in ours:
    assert not settings
    return
  flat = common.get_config().to_dict()
  flat.pop('model')  # What is in it depends on the family.
  want = {f'--config.{k}=' for k, v in flat.items() if not isinstance(v, dict)}
  want |= {f'--config.pp.{k}=' for k in flat['pp']}
  assert want <= settings
  assert {
    '--config.total_epochs=',
    '--config.mesh.fsdp=',
    '--config.model.transformer.num_layers=',
  } <= settings
  assert ('--config.sweep.seeds=' in settings) == (name == 'sweep')


@flagsaver.flagsaver()  # Forgets the flags that are asked for.
def test_completion_is_kept_until_the_code_changes(monkeypatch, tmp_path):
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
  want = dispatch.completions('predict')
  asked = []
  defined = lambda name: asked.append(name) or ['--new=']
  monkeypatch.setattr(dispatch, '_defined', defined)
  assert dispatch.completions('predict') == want
  assert not asked
  [path] = (tmp_path / 'vit_jax').iterdir()
  path.write_text(json.dumps(json.loads(path.read_text()) | {'code': 'old'}))
  assert dispatch.completions('predict') == ['--new=']
  path.write_text('cut {')
  assert dispatch.completions('predict') == ['--new=']
  monkeypatch.setenv('XDG_CACHE_HOME', os.devnull)  # It cannot be written.
  assert dispatch.completions('predict') == ['--new=']


@pytest.mark.parametrize(
  ('words', 'want'),
  [
    (['vit-jax', 'fea'], ['features']),
    (['vit-jax', 'predict', '--top'], ['--top_k=']),
    (['vit-jax', 'train', '--config.warmup_e'], ['--config.warmup_epochs=']),
    (['vit-jax', 'train', 'configs/b'], []),  # Bash completes files.
    # Bash splits words at '=' and replaces only the last part.
    (
      ['vit-jax', 'train', '--config.optimizer', '='],
      ['sgd', 'adamw', 'lamb', 'adafactor', 'muon'],
    ),
    (
      ['vit-jax', 'train', '--config.optimizer', '=', 'ad'],
      ['adamw', 'adafactor'],
    ),
    (['vit-jax', 'train', '--config.pp.augmentation', '=', 'n'], ['none']),
    (['vit-jax', 'train', '--config.exact_gelu', '=', 'T'], ['True']),
    (['vit-jax', 'train', '--config.batch', '='], []),
    (['vit-jax', 'train', '--distributed', '=', 'o'], ['off', 'on']),
    # Zsh does not split them.
    (
      ['vit-jax', 'sweep', '--config.optimizer=l'],
      ['--config.optimizer=lamb'],
    ),
    (['vit-jax', 'predict', '--config.optimizer', '='], []),
    # Run files of the package by name; folders and Python files here.
    (
      ['vit-jax', 'train', '--config', '=', 'b16_'],
      ['b16_cifar10', 'b16_cifar100', 'b16_imagenet'],
    ),
    (['vit-jax', 'sweep', '--config=finetune'], ['--config=finetune_mini']),
    (
      ['vit-jax', 'train', '--config', '=', 'configs/lit'],
      ['configs/lit_folder.py'],
    ),
    (['vit-jax', 'train', '--config', '=', 'confi'], ['configs/']),
    (['vit-jax', 'predict', '--config', '=', 'b16_'], []),
  ],
)
def test_bash_completes(words, want, tmp_path):
  if not shutil.which('bash'):
    pytest.skip('needs bash')
  (tmp_path / 'vit-jax').write_text(
    f'#!/bin/sh\nexec {sys.executable} -m vit_jax "$@"\n'
  )
  (tmp_path / 'vit-jax').chmod(0o755)
  script = call_command('--completion=bash').stdout
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
    env={
      'PATH': f'{tmp_path}:/usr/bin:/bin',
      'XDG_CACHE_HOME': os.environ['XDG_CACHE_HOME'],
    },
  )
  assert result.stdout.split() == want
  assert not result.stderr
  assert pathlib.Path(dispatch.__file__).is_file()
