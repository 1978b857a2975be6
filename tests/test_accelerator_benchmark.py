"""The benchmark of accelerators ends in time, goes on, and keeps what it has."""

import json
import subprocess
import sys

from golden_files import REPOSITORY
import pytest

from benchmarks import accelerator
from benchmarks import accelerator_jobs
from benchmarks import accelerator_runs
from benchmarks import accelerator_table

TINY = accelerator_jobs.TINY

# Does not measure. The first model that is asked for ends the process.
CHILD = """
import json, os, sys, time
for job in json.loads(sys.argv[1]):
  print(json.dumps({'begun': job['name']}), flush=True)
  if job['what'].get('step') == 'train': print('bad', file=sys.stderr); os._exit(3)
  if job['kind'] == 'copy' and sys.argv[2:] == ['slow']: time.sleep(60)
  row = {'ms': 2.0, 'flags': os.environ['XLA_FLAGS'], 'images_s': 1.0}
  print(json.dumps({'name': job['name'], 'row': row}), flush=True)
"""


def child(tmp_path, *arguments):
  return [
    sys.executable,
    '-c',
    CHILD.replace('sys.argv[2:]', repr([*arguments])),
  ]


def test_a_job_that_ends_its_process_does_not_end_the_others(tmp_path):
  path = tmp_path / 'x.json'
  left = accelerator.measure([2], TINY, path, 60, command=child(tmp_path))
  assert not left
  rows = json.loads(path.read_text())
  for name, row in rows.items():
    if '"train"' in name:
      assert row == {'error': 'its process ended with 3: bad'}
    else:
      assert row['ms'] == 2.0
  assert len(rows) == 3


def test_it_ends_in_time_and_goes_on_with_what_is_missing(tmp_path):
  path = tmp_path / 'x.json'
  slow = child(tmp_path, 'slow')
  left = accelerator.measure([1], TINY, path, 3, command=slow)
  have = json.loads(path.read_text()) if path.exists() else {}
  assert 'copy' in {job.kind for job in left}
  assert not any(name.startswith('copy') for name in have)
  path.write_text(json.dumps({name: {'ms': 1.0} for name in have}))
  quick = child(tmp_path)
  assert not accelerator.measure([1], TINY, path, 60, command=quick)
  rows = json.loads(path.read_text())
  assert len(rows) == len(have) + len(left)
  assert all(rows[name] == {'ms': 1.0} for name in have)


def test_the_winner_has_all_changes_that_helped():
  results = {}
  for _ in range(3):
    for job in accelerator_jobs.missing(3, TINY, results):
      speed = {'results': 12.0, 'fused_qkv': 11.0}.get(
        job.what.get('policy', ''), 10.0
      )
      results[job.name] = {'images_s': speed}
  assert not accelerator_jobs.missing(3, TINY, results)
  assert any('"policy": "results+fused_qkv"' in name for name in results)


def test_flags_are_given_to_xla(tmp_path, monkeypatch):
  monkeypatch.setenv('XLA_FLAGS', '--a=1')
  path, rows = tmp_path / 'x.json', {}
  job = accelerator_jobs.Job(3, 'model', {'step': 'inference'}, '--b=2')
  accelerator.run([job], child(tmp_path), 60, rows.__setitem__)
  assert rows[job.name]['flags'] == '--a=1 --b=2'
  text = accelerator_table.markdown(rows)
  assert '| inference | --a=1 --b=2 |' in text
  assert not path.exists()


def test_operations_of_a_device_are_added_up():
  events = [
    {'name': 'process_name', 'pid': 1, 'args': {'name': '/device:GPU:0'}},
    {'name': 'process_name', 'pid': 2, 'args': {'name': '/host:CPU'}},
    {'name': 'gemm', 'pid': 1, 'dur': 1500},
    {'name': 'gemm', 'pid': 1, 'dur': 500},
    {'name': 'copy', 'pid': 1, 'dur': 1000},
    {'name': 'python', 'pid': 2, 'dur': 9000},
  ]
  row = accelerator_runs.operations(events)
  assert row == {'ms': 3.0, 'operations': {'gemm': 2.0, 'copy': 1.0}}


@pytest.mark.slow
def test_rehearsal(tmp_path):
  output = tmp_path / 'rehearsal'
  subprocess.run(
    [
      *(sys.executable, '-m', 'benchmarks.accelerator', '--tiny'),
      *('--minutes=15', f'--output={output}'),
    ],
    cwd=REPOSITORY,
    check=True,
  )
  rows = json.loads(output.with_suffix('.json').read_text())
  wrong = {name: row for name, row in rows.items() if 'error' in row}
  assert all('"timm"' in name for name in wrong)  # May not be installed.
  [same] = [r['same_bits'] for n, r in rows.items() if n.startswith('resume')]
  assert same
  assert '## operations' in output.with_suffix('.md').read_text()
