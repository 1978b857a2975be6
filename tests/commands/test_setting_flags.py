"""Messages of commands without a run file name their flags, not settings."""

import ast
import functools
import re

from golden_files import REPOSITORY
from processes import call_command
import pytest

from vit_jax.commands import dispatch
from vit_jax.commands import setting_flags
from vit_jax.configs import common

# Settings in messages that only runs print, or advice about the next run.
_OF_RUNS = (
  'adapt_channels',
  'adapt_patches',
  'class_weights',
  'columns.classes',
  'columns.units',
  'model',
  'posemb',
  'pp.augmentation',
  'pp.balance_classes',
  'pp.channels',
  'pp.exif',
  'pp.mean',
  'pp.shots',
  'pp.std',
  'pretrained',
)


@functools.cache
def flags_of(command):
  words = call_command('--complete', command).stdout.split()
  return {word.removeprefix('--').split('=')[0] for word in words}


def mentioned(path):
  """Returns the settings that the texts of a module name, but its docstrings."""
  tree = ast.parse(path.read_text())
  texts = [
    node.value
    for node in ast.walk(tree)
    if isinstance(node, ast.Constant) and isinstance(node.value, str)
  ]
  found = re.findall(r'config\.([a-z_]+(?:\.[a-z_]+)*)(?!\w)', ' '.join(texts))
  return set(found) - {'json', 'columns', 'pp'}


def exists(name):
  group, _, field = name.rpartition('.')
  settings = common.get_config()
  return field in (settings.get(group) or () if group else settings)


def test_messages_about_data_and_weights_name_known_settings():
  names = set()
  for package in ('data', 'weights'):
    for path in (REPOSITORY / 'vit_jax' / package).rglob('*.py'):
      names |= set(filter(exists, mentioned(path)))
  known = {name.removeprefix('config.') for name in setting_flags.FLAGS}
  assert len(names & known) > 5
  assert not names - known - set(_OF_RUNS)
  assert set(_OF_RUNS) <= names


def test_the_settings_that_flags_stand_for_exist():
  every = set().union(*map(flags_of, dispatch.COMMANDS))
  for name, flag in setting_flags.FLAGS.items():
    assert exists(name.removeprefix('config.')), name
    assert flag in every, flag
  columns = {f for f in every if f.endswith('_column')}
  assert columns <= set(setting_flags.FLAGS.values())


@pytest.mark.parametrize('command', dispatch.COMMANDS)
def test_each_setting_becomes_the_flag_of_a_command(command, monkeypatch):
  own = flags_of(command)
  monkeypatch.setattr('absl.flags.FLAGS', own)
  for name, flag in setting_flags.FLAGS.items():
    has_flag = flag in own and 'config' not in own
    want = f'--{flag}' if has_flag else name
    text = f'Set {name}=x, not ({name}), config.json, {name}z or {name}.'
    assert setting_flags.named(text) == (
      f'Set {want}=x, not ({want}), config.json, {name}z or {want}.'
    )


@pytest.mark.parametrize(
  ('words', 'message'),
  [
    (('data', 'TABLE'), 'with the labels: --label_column=NAME.'),
    (('data', 'TABLE', '--task=regression'), 'numbers: --target_column=NAME.'),
    (('data', 'TABLE', '--label_column=x', '--target_column=y'), '--task to'),
    (
      ('evaluate', '--model=ViT-Mini_8', '--dataset=TABLE'),
      'with the labels: --label_column=NAME.',
    ),
    (
      ('evaluate', '--model=ViT-Mini_8', '--dataset=/nowhere/'),
      "no data set '/nowhere/'",
    ),
    (('data', 'TABLE', '--label_column=x', '--split=y'), "--split='train[90"),
  ],
)
def test_commands_advise_their_flags(words, message, tmp_path):
  path = tmp_path / 'table.csv'
  path.write_text('image,x,y\n0.png,a,1\n1.png,a,2\n')
  done = call_command(*(word.replace('TABLE', str(path)) for word in words))
  assert done.returncode == 1
  assert message in done.stderr
  assert 'config.' not in done.stderr
