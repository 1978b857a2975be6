"""The page of settings is that of the code."""

from tools import settings_page
from vit_jax.configs import common


def test_the_page_is_up_to_date():
  assert settings_page.PAGE.read_text() == settings_page.page()


def test_the_page_has_every_setting():
  config, text = common.get_config(), settings_page.page()
  names = [n for n in config if n != 'pp'] + [f'pp.{n}' for n in config.pp]
  assert not [name for name in names if f'`{name}`' not in text]


def test_every_boolean_has_its_values():
  config, page = common.get_config(), settings_page.page()
  rows = [line for line in page.split('\n') if line.startswith('|')]
  names = [n for n in config if config.get_type(n) is bool]
  names += [f'pp.{n}' for n in config.pp if config.pp.get_type(n) is bool]
  assert {'exact_gelu', 'report', 'pp.exif'} <= {*names}
  for name in names:
    [line] = [line for line in rows if f'`{name}`' in line.split('|')[1]]
    assert '`True`, `False`' in line, name
