"""Every pair of settings, in runs of three steps; see `pair_checks`."""

import itertools
import json
import sys

import pair_checks
import pairs
from processes import running
from processes import start_command
import pytest


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  root = tmp_path_factory.mktemp('pairs')
  pairs.make_folder(root / 'good')
  pairs.make_folder(root / 'bad', bad=True)
  with pair_checks.compiled_once(root / 'programs'):
    yield root


def numbered(on_one_device):
  return [
    (number, row)
    for number, row in enumerate(pairs.ROWS)
    if (row['mesh'] == 'one') == on_one_device
  ]


def test_rows_on_one_device_have_every_value():
  for setting, values in pairs.SETTINGS.items():
    have = {row[setting] for _, row in numbered(True)}
    assert have == ({'one'} if setting == 'mesh' else set(values)), setting


def test_rows_have_every_pair():
  for (a, xs), (b, ys) in itertools.combinations(pairs.SETTINGS.items(), 2):
    have = {(row[a], row[b]) for row in pairs.ROWS}
    assert have == set(itertools.product(xs, ys))


@pytest.mark.slow
@pytest.mark.parametrize(
  'row', [pytest.param(row, id=str(n)) for n, row in numbered(True)]
)
def test_run_with_settings(row, folder, tmp_path):
  pair_checks.check(row, folder, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize('part', range(3))
def test_runs_with_settings_on_eight_devices(part, folder, tmp_path):
  rows = tmp_path / 'rows.json'
  rows.write_text(json.dumps(numbered(False)[part::3]))
  process = start_command(
    sys.executable,
    'tests/pair_checks.py',
    str(rows),
    str(folder),
    str(tmp_path),
  )
  with running([process]) as results:
    [result] = results()
  assert result.returncode == 0, result.stdout + result.stderr[-2000:]
