"""Writes docs/settings.md: every setting, its default, and the comment above it.

python -m tools.settings_page
"""

import ast
import inspect
import pathlib
import re
from typing import Any

import ml_collections

from vit_jax.configs import common
from vit_jax.configs import images
from vit_jax.configs import losses
from vit_jax.configs import optimization

PAGE = pathlib.Path(__file__).parents[1] / 'docs' / 'settings.md'

_HEAD = """\
# Settings

Every setting of a run, written by `python -m tools.settings_page` from the code that declares
it. Each can be set on the command line: `--config.base_lr=0.01 --config.pp.crop=224`. A
misspelt name, a value out of range, or a setting on the command line that another one leaves
without effect fails before anything is loaded. Durations in epochs (`total_epochs`, `warmup_epochs`,
`cooldown_epochs`, `eval_every_epochs`, `checkpoint_every_epochs`) override durations in steps,
except steps that are set on the command line. An epoch is the images that are trained on, after
`pp.shots` and `pp.balance_classes`.
"""

_QUOTED = r"(?<![\w`])'([^' ]*)'(?!\w)"

_SECTIONS = {
  '_declare': 'The run',
  '_add_model': 'Model and weights',
  '_add_data': 'Data',
  'declare_schedule': 'Training',
  'declare_optimizer': 'Optimizer',
  'losses': 'Loss',
  '_add_contrastive': 'Images and texts',
  '_add_events': 'Metrics and checkpoints',
}

# Sections that are declared in a module of their own.
_MODULES = {
  'declare_schedule': optimization.declare_schedule,
  'declare_optimizer': optimization.declare_optimizer,
  'losses': losses.declare,
}

_IMAGES = ('declare', '_add_pixels', '_add_augmentation')


def page() -> str:
  """Returns the page."""
  config, parts = common.get_config(), [_HEAD]
  for name, title in _SECTIONS.items():
    function = _MODULES.get(name) or getattr(common, name)
    rows = _declared(inspect.getsource(function), 'config')
    parts.append(_table(title, rows, config, ''))
  source = '\n'.join(
    inspect.getsource(getattr(images, function)) for function in _IMAGES
  )
  parts.append(_table('Images', _declared(source, 'pp'), config.pp, 'pp.'))
  return '\n'.join(parts)


def write() -> None:
  """Writes the page."""
  PAGE.write_text(page(), encoding='utf-8')


def _declared(source: str, name: str) -> list[tuple[list[str], str]]:
  """Returns (settings, the comment above them) in the order of the source."""
  lines, found = source.split('\n'), []
  starts = {
    node.lineno: node.targets[0].attr
    for node in ast.walk(ast.parse(source))
    if isinstance(node, ast.Assign)
    and isinstance(node.targets[0], ast.Attribute)
    and ast.unparse(node.targets[0].value) == name
  }
  for number, setting in sorted(starts.items()):
    above = number - 1
    while lines[above - 1].strip().startswith('#'):
      above -= 1
    comment = [line.strip().lstrip('# ') for line in lines[above : number - 1]]
    if comment:
      found.append(([setting], ' '.join(comment)))
    elif setting != 'pp':  # It shares the comment of the one before.
      found[-1][0].append(setting)
  return found


def _table(title: str, rows: Any, config: Any, prefix: str) -> str:
  lines = [
    f'## {title}\n',
    '| setting | default | values | meaning |',
    '| --- | --- | --- | --- |',
  ]
  for settings, comment in rows:
    names = ', '.join(f'`{prefix}{name}`' for name in settings)
    values = [_plain(config[name]) for name in settings]
    if settings == ['pp']:
      values, comment = ['see below'], f'{comment} See [Images](#images).'
    defaults = ', '.join(f'`{value!r}`' for value in values)
    ranges = [_values(prefix + name, config[name]) for name in settings]
    allowed = '; '.join(filter(None, dict.fromkeys(ranges)))
    texts = [re.sub(_QUOTED, r"`'\1'`", text) for text in (allowed, comment)]
    cells = ' | '.join(text.replace('|', chr(92) + '|') for text in texts)
    lines.append(f'| {names} | {defaults} | {cells} |')
  return '\n'.join(lines) + '\n'


def _plain(value: Any) -> Any:
  """Returns a group of settings as a dictionary, others as they are."""
  return dict(value) if isinstance(value, ml_collections.ConfigDict) else value


def _values(name: str, default: Any) -> str:
  """Returns the values that a setting may have, '' where any will do."""
  rule = common.RULES.get(name)
  if rule and rule.choices:
    return ', '.join(f'`{choice!r}`' for choice in rule.choices)
  if rule:
    return rule.allowed
  if isinstance(default, ml_collections.ConfigDict) and name != 'pp':
    ranges = {
      field: _values(f'{name}.{field}', default[field]) for field in default
    }
    return '; '.join(
      f'`{field}` {text}' for field, text in ranges.items() if text
    )
  return '`True`, `False`' if isinstance(default, bool) else ''


if __name__ == '__main__':
  write()
