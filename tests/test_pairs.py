"""Every pair of settings, in runs of three steps; see `pairs`."""

import itertools
import json
import sys

from conftest import running
from conftest import start_command
import pairs
import pytest


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  root = tmp_path_factory.mktemp('pairs')
  pairs.make_folder(root / 'good')
  pairs.make_folder(root / 'bad', bad=True)
  with pairs.compiled_once(root / 'programs'):
    yield root


def numbered(on_one_device, part=None):
  return [
    (number, row)
    for number, row in enumerate(pairs.ROWS)
    if (row['mesh'] == 'one') == on_one_device and part in (None, number % 3)
  ]


# A third of the rows runs each time; `-m exhaustive` runs the others.
exhaustive = pytest.mark.exhaustive


def test_rows_have_every_pair():
  for (a, xs), (b, ys) in itertools.combinations(pairs.SETTINGS.items(), 2):
    have = {(row[a], row[b]) for row in pairs.ROWS}
    assert have == set(itertools.product(xs, ys))


@pytest.mark.parametrize(
  'row',
  [
    pytest.param(row, id=str(n), marks=[exhaustive] if n % 3 else [])
    for n, row in numbered(True)
  ],
)
def test_run_with_settings(row, folder, tmp_path):
  pairs.check(row, folder, tmp_path)


@pytest.mark.parametrize(
  'part', [0, *(pytest.param(n, marks=exhaustive) for n in (1, 2))]
)
def test_runs_with_settings_on_eight_devices(part, folder, tmp_path):
  rows = tmp_path / 'rows.json'
  rows.write_text(json.dumps(numbered(False, part)))
  process = start_command(
    sys.executable, 'tests/pairs.py', str(rows), str(folder), str(tmp_path)
  )
  with running([process]) as results:
    [result] = results()
  assert result.returncode == 0, result.stdout + result.stderr[-2000:]
