"""Mistakes in --config, each of which gives one line."""

import operator
import sys

from absl import flags
import flax.traverse_util
from golden_files import REPOSITORY
from ml_collections import config_flags
from processes import HANG_SECONDS
from processes import start_command
import pytest

from vit_jax.commands import cli
from vit_jax.configs import common
from vit_jax.runtime import errors

RUN_FILES = {
  'raises.py': "def get_config(x):\n  raise ValueError('wants this,\\nnot that')",
  'looks_up.py': "def get_config():\n  return {}['a_name']",
  'syntax.py': 'Run me.\n',
  'takes_none.py': 'def get_config():\n  return None',
  'takes_one.py': 'def get_config(model_folder):\n  return None',
}


def test_words_are_refused_and_required_flags_named(monkeypatch):
  with pytest.raises(errors.UserError, match="'extra' is not a flag"):
    cli.refuse_words(['main.py', 'extra'])
  values = flags.FlagValues()
  for name in ('workdir', 'output'):
    flags.DEFINE_string(name, None, '', required=True, flag_values=values)
  monkeypatch.setattr(flags, 'FLAGS', values)
  with pytest.raises(SystemExit) as error:
    cli._parse_flags(['main.py'])
  for name in ('workdir', 'output'):
    assert f' --{name} must be given.' in error.value.code
  assert '\n' not in error.value.code


def test_a_closed_pipe_ends_without_a_message():
  process = start_command(
    'bash',
    '-c',
    f'set -o pipefail; {sys.executable} -m vit_jax models | head -1',
  )
  out, err = process.communicate(timeout=HANG_SECONDS)
  assert len(out.splitlines()) == 1
  assert not err
  assert process.returncode in (0, 141)  # Where all was written before.


def parsed(words, monkeypatch):
  """Returns (rest of the words, settings, names that the words set)."""
  values = flags.FlagValues()
  config_flags.DEFINE_config_file('config', flag_values=values)
  monkeypatch.setattr(flags, 'FLAGS', values)
  monkeypatch.setattr('sys.argv', words)  # Where config_flags looks for names.
  rest = cli._parse_flags(words)
  return rest, values.config, config_flags.get_override_values(values['config'])


def test_settings_that_may_be_none_are_set_to_none(monkeypatch):
  base = common.get_config()
  flat = flax.traverse_util.flatten_dict(base.to_dict(), sep='.')
  names = [name for name, value in flat.items() if value is None]
  assert {'total_epochs', 'pp.mean', 'pp.shots', 'tfds_data_dir'} <= {*names}
  words = ['main.py', f'--config={REPOSITORY}/configs/digits.py', 'word']
  words += [f'--config.{name}=None' for name in names]
  rest, config, given = parsed([*words, '--config.seed=3'], monkeypatch)
  assert rest == ['main.py', 'word']
  assert config.seed == 3
  assert {*given} == {*names, 'seed'}
  for name in names:
    assert operator.attrgetter(name)(config) is None, name


def test_settings_that_must_have_a_value_are_not_set_to_none(monkeypatch):
  words = ['main.py', f'--config={REPOSITORY}/configs/digits.py']
  with pytest.raises(SystemExit, match='config.seed=None: '):
    parsed([*words, '--config.seed=None'], monkeypatch)


@pytest.mark.parametrize(
  'value, message',
  [
    (
      'nowhere.py',
      r"cannot be read: .*No such file or directory: '.*nowhere.py'\. The package",
    ),
    ('.', 'cannot be read: .*Is a directory'),
    ('raises.py:x', r'wants this, not that \(.*raises.py:2\)'),
    ('looks_up.py', r'a_name \(.*looks_up.py:2\)'),
    ('syntax.py', 'syntax.py:1 is not Python'),
    ('takes_none.py:x', r'takes 0 .*--config=FILE.py:ARGUMENT'),
    ('takes_one.py', "'model_folder'.*--config=FILE.py:ARGUMENT"),
    (
      'configs/folder.py:b16',
      'configs/folder.py needs a model and a folder such as'
      r" folder.py:b16,/path/to/data, not 'b16'\.",
    ),
    (
      'configs/folder.py:b61,/x',
      r"no model 'b61'.*\(.*configs/folder.py:\d+\)",
    ),
    (
      'configs/digits.py --config.bas_lr=1',
      'no setting .bas_lr.*mean "base_lr"',
    ),
  ],
)
def test_a_wrong_run_file_gives_one_line(value, message, tmp_path, monkeypatch):
  for name, text in RUN_FILES.items():
    (tmp_path / name).write_text(text)
  folder = REPOSITORY if value.startswith('configs') else tmp_path
  words = f'main.py --config={folder}/{value}'.split()
  with pytest.raises(SystemExit, match=f'^main.py: .*{message}') as error:
    parsed(words, monkeypatch)
  assert '\n' not in error.value.code
