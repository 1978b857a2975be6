"""The page of settings is that of the code."""

from tools import settings_page
from vit_jax.configs import common


def test_the_page_is_up_to_date():
  assert settings_page.PAGE.read_text() == settings_page.page()


def test_the_page_has_every_setting():
  config, text = common.get_config(), settings_page.page()
  names = [n for n in config if n != 'pp'] + [f'pp.{n}' for n in config.pp]
  assert not [name for name in names if f'`{name}`' not in text]
