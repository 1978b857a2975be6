"""The results of `benchmarks.accelerator` as Markdown tables."""

from collections.abc import Mapping
import json
from typing import Any

_SKIPPED = ('whole_s', 'steps', 'ms_fastest', 'ms_slowest', 'operations')


def markdown(results: Mapping[str, dict[str, Any]]) -> str:
  """Returns a table for each kind of job, in the order in which they were measured.

  The spread is the difference of the slowest and the fastest round, over the median.
  Operations of a trace have a table of their own.
  """
  kinds: dict[str, list[dict[str, Any]]] = {}
  for name, row in results.items():
    kind, what, flags = _parts(name)
    shown = {k: v for k, v in row.items() if k not in _SKIPPED}
    if 'ms_fastest' in row:
      shown['spread'] = (row['ms_slowest'] - row['ms_fastest']) / row['ms']
    kinds.setdefault(kind, []).append({**what, **flags, **shown})
    if 'operations' in row:
      kinds['operations'] = [
        {'operation': x, 'ms': ms} for x, ms in row['operations'].items()
      ]
  return '\n'.join(
    f'## {kind}\n\n{table(rows)}' for kind, rows in kinds.items()
  )


def _parts(name: str) -> tuple[str, dict[str, Any], dict[str, str]]:
  """Splits the name of a job into its kind, its arguments and its flags."""
  kind, _, rest = name.partition(' ')
  what, end = json.JSONDecoder().raw_decode(rest)
  flags = rest[end:].strip()
  return kind, what, {'flags': flags} if flags else {}


def table(rows: list[dict[str, Any]]) -> str:
  """Returns a Markdown table with a column for each name that has several values."""
  names = list(dict.fromkeys(name for row in rows for name in row))
  lines = [
    '| ' + ' | '.join(names) + ' |',
    '|' + ' --- |' * len(names),
  ]
  for row in rows:
    cells = (_cell(row.get(name)) for name in names)
    lines.append('| ' + ' | '.join(cells) + ' |')
  return '\n'.join(lines) + '\n'


def _cell(value: Any) -> str:
  if value is None:
    return ''
  text = f'{value:.4g}' if isinstance(value, float) else str(value)
  return text.replace('|', '\\|').replace('\n', ' ')
