"""Mistakes in --config, each of which gives one line."""

from absl import flags
from conftest import REPOSITORY
from ml_collections import config_flags
import pytest

from vit_jax import cli

RUN_FILES = {
  'raises.py': "def get_config(x):\n  raise ValueError('wants this,\\nnot that')",
  'looks_up.py': "def get_config():\n  return {}['a_name']",
  'syntax.py': 'Run me.\n',
  'takes_none.py': 'def get_config():\n  return None',
  'takes_one.py': 'def get_config(model_folder):\n  return None',
}


@pytest.mark.parametrize(
  'value, message',
  [
    (
      'nowhere.py',
      "cannot be read: .*No such file or directory: '.*nowhere.py'",
    ),
    ('.', 'cannot be read: .*Is a directory'),
    ('raises.py:x', r'wants this, not that \(.*raises.py:2\)'),
    ('looks_up.py', r'there is no a_name \(.*looks_up.py:2\)'),
    ('syntax.py', 'syntax.py:1 is no Python'),
    ('takes_none.py:x', r'takes 0 .*--config=FILE.py:ARGUMENT'),
    ('takes_one.py', "'model_folder'.*--config=FILE.py:ARGUMENT"),
    ('configs/folder.py:b16', 'folder.py needs a model and a folder'),
    ('configs/folder.py:b61,/x', "no model 'b61'"),
    ('configs/digits.py --config.bas_lr=1', 'no .bas_lr.*mean "base_lr"'),
  ],
)
def test_a_wrong_run_file(value, message, tmp_path, monkeypatch):
  for name, text in RUN_FILES.items():
    (tmp_path / name).write_text(text)
  folder = REPOSITORY if value.startswith('configs') else tmp_path
  values = flags.FlagValues()
  config_flags.DEFINE_config_file('config', flag_values=values)
  monkeypatch.setattr(flags, 'FLAGS', values)
  words = f'main.py --config={folder}/{value}'.split()
  monkeypatch.setattr('sys.argv', words)  # Where config_flags looks for names.
  with pytest.raises(SystemExit, match=f'^vit_jax.main: .*{message}') as error:
    cli._parse_flags(words)
  assert '\n' not in error.value.code
