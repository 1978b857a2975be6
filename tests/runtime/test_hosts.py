"""Several processes train as one, stop as one, and go on as fewer."""

import shutil
import signal
import sys

from many_hosts import assert_codes
from many_hosts import last_line
from many_hosts import SETTINGS
from many_hosts import with_flags
from many_hosts import with_slurm
import numpy as np
from pictures import make_image_folder
from processes import run
from processes import running
from processes import start_command
import pytest
from runs import arguments
from runs import flat
from runs import rows
from runs import signalled

from vit_jax.runtime import hosts

pytestmark = pytest.mark.usefixtures('quick_compilation')


@pytest.fixture(scope='module')
def unbroken(tmp_path_factory, quick_compilation):
  """A run of one process: (images, workdir)."""
  root = tmp_path_factory.mktemp('unbroken')
  folder = make_image_folder(root / 'images')
  result = run(*arguments(folder, root / 'run', *SETTINGS))
  assert result.returncode == 0, result.stderr
  return folder, root / 'run'


def assert_equal_runs(got, want, stopped_at=None):
  """Checks that each loss, the evaluations and the parameters are the same.

  Args:
    got: workdir.
    want: workdir.
    stopped_at: step after which `got` had no time for an evaluation.
  """
  arrays = flat(want)
  assert flat(got).keys() == arrays.keys()
  for name, array in flat(got).items():
    np.testing.assert_allclose(array, arrays[name], atol=1e-5, err_msg=name)
  for name in ('train_loss', 'loss_test', 'accuracy_test', 'examples_test'):
    values = [
      {
        row['step']: row[name]
        for row in rows(workdir)
        if name in row and (name == 'train_loss' or row['step'] != stopped_at)
      }
      for workdir in (got, want)
    ]
    assert values[0] == pytest.approx(values[1], abs=1e-5), name
  tests = [row for row in rows(got) if 'examples_test' in row]
  assert {row['step'] for row in tests} >= {6, 12, 36} - {stopped_at}
  assert {row['examples_test'] for row in tests} == {15}


def saved_steps(workdir):
  """Steps of the whole checkpoints."""
  names = [p.name for p in (workdir / 'checkpoints').glob('*')]
  return {int(name) for name in names if name.isdigit()}


@pytest.mark.slow
def test_a_run_resumes_with_other_processes_and_another_mesh(
  unbroken, tmp_path
):
  """Three lose one; of two on another mesh one is interrupted; one ends it."""
  folder, want = unbroken
  workdir = tmp_path / 'run'
  # As step 12 is saved, step 6 is.
  kill = signalled(folder, workdir, signal.SIGKILL, 13, *SETTINGS, process=1)
  with running(with_flags(3, *kill)) as results:
    ended = results()
  assert_codes(ended, [1, -signal.SIGKILL, 1])
  for i in (0, 2):
    assert last_line(ended[i]).startswith('vit_jax.main: Another process was')
    assert 'Traceback' not in ended[i].stderr

  lost_after = max(saved_steps(workdir))
  assert lost_after in (6, 12)
  stop = signalled(folder, workdir, signal.SIGINT, 20, *SETTINGS, process=1)
  with running(with_slurm(2, *stop, '--config.mesh.fsdp=2')) as results:
    ended = results()
  assert_codes(ended, [0, 130])
  stopped_at = max(saved_steps(workdir))
  assert 20 < stopped_at < 36
  for result in ended:
    assert f'Restored step {lost_after} ' in result.stderr
    message = f': saving step {stopped_at}; the same command'
    assert message in result.stderr
  assert last_line(ended[1]) == 'vit_jax.main: interrupted.'

  args = arguments(folder, workdir, *SETTINGS)
  result = run(*args, '--config.mesh.model=2', devices=2)
  assert result.returncode == 0, result.stderr
  assert f'Restored step {stopped_at} ' in result.stderr
  assert_equal_runs(workdir, want, stopped_at=stopped_at)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which('mpirun'), reason='Open MPI is missing.')
def test_two_processes_of_mpirun_equal_one(unbroken, tmp_path):
  folder, want = unbroken
  process = start_command(
    *('mpirun', '--oversubscribe', '-n', '2', sys.executable, '-m'),
    *arguments(folder, tmp_path / 'run', *SETTINGS),
    OMPI_ALLOW_RUN_AS_ROOT='1',
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1',
  )
  with running([process]) as results:
    [result] = results()
  assert result.returncode == 0, result.stderr
  for i in range(2):
    assert f'Process {i} of 2' in result.stderr
  assert_equal_runs(tmp_path / 'run', want)


def test_clusters_are_detected():
  assert not hosts.is_cluster({})
  assert not hosts.is_cluster({'SLURM_NTASKS': '8'})  # Not within srun.
  assert hosts.is_cluster({'SLURM_STEP_NUM_TASKS': '8'})
  assert hosts.is_cluster({'OMPI_COMM_WORLD_SIZE': '2'})
  assert hosts.is_cluster({'TPU_WORKER_HOSTNAMES': 'host0,host1'})
  assert hosts.is_cluster({'JAX_COORDINATOR_ADDRESS': 'host:1234'})
