"""Two processes train each task as one: same losses, scores and parameters."""

import json

import numpy as np
from pictures import make_table
from processes import free_port
from processes import run
from processes import running
from processes import start
import pytest
from runs import arguments
from runs import flat
from runs import rows

COUNT = 30

# The numbers of test and of held-out images are odd, so that the last batch is padded.
SETTINGS = (
  '--config.model.transformer.num_layers=1',
  '--config.pp.train=train[:60%]',
  '--config.pp.test=train[60%:90%]',
  '--config.dtype=float32',
  '--config.optimizer=sgd',
  '--config.optim_dtype=float32',
  '--config.base_lr=0.1',
  '--config.ema_decay=0.5',
  '--config.warmup_steps=1',
  '--config.total_steps=6',
  '--config.progress_every=1',
  '--config.eval_every=3',
  '--config.checkpoint_every=6',
)
TASKS = {
  'multilabel': (
    'labels',
    '--config.pp.holdout=train[90%:]',
    '--config.class_weights=balanced',
    '--config.pp.mixup=0.2',
  ),
  'regression': ('red,bright',),
}
_SPEEDS = 'img_sec'  # What differs between any two runs.


def measured(workdir):
  """Returns each number of metrics.jsonl by its step and name, without speeds."""
  return {
    (row['step'], name): value
    for row in rows(workdir)
    for name, value in row.items()
    if not name.startswith(_SPEEDS)
  }


@pytest.mark.slow
@pytest.mark.parametrize('task', TASKS)
def test_two_processes_equal_one(task, tmp_path):
  columns, *settings = TASKS[task]
  if task == 'regression':
    settings += [f'--config.columns.target={columns}']
  table = make_table(
    tmp_path / 'images', [*columns.split(','), 'weight'], COUNT
  )
  fast = {'JAX_DISABLE_MOST_OPTIMIZATIONS': '1'}
  one, two = tmp_path / 'one', tmp_path / 'two'
  result = run(*arguments(table, one, *SETTINGS, *settings), **fast)
  assert result.returncode == 0, result.stderr
  command = arguments(table, two, *SETTINGS, *settings)
  where = {
    'JAX_COORDINATOR_ADDRESS': f'127.0.0.1:{free_port()}',
    'JAX_NUM_PROCESSES': '2',
  }
  processes = [
    start(*command, **fast, **where, JAX_PROCESS_ID=str(i)) for i in range(2)
  ]
  with running(processes) as results:
    for result in results():
      assert result.returncode == 0, result.stderr
  want = measured(one)
  assert {step for step, _ in want} == {*range(1, 7)}
  assert measured(two) == pytest.approx(want, rel=1e-4, abs=1e-5)
  assert want[6, 'examples_test'] == 9
  for name, array in flat(two).items():
    np.testing.assert_allclose(array, flat(one)[name], atol=1e-5, err_msg=name)
  saved = [
    json.loads((x / 'artifact/config.json').read_text()) for x in (one, two)
  ]
  for x in saved:
    assert x['task'] == task
  if task == 'multilabel':
    first, second = (x['thresholds'] for x in saved)
    assert second == pytest.approx(first, abs=1e-5)
