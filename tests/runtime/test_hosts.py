"""Several processes train as one, stop as one, and go on as fewer."""

import pathlib
import shutil
import signal
import sys

import grain
import numpy as np
from pictures import make_image_folder
from processes import free_port
from processes import run
from processes import running
from processes import start
from processes import start_command
from processes import wait_for
import pytest
from runs import arguments
from runs import flat
from runs import rows
from runs import signalled

from vit_jax.data import sources
from vit_jax.runtime import hosts

# Batches that 1 to 3 processes can share; 15 test images are not a multiple of
# any of it. Momentum in float32: rounding hides what must be equal.
SETTINGS = (
  '--config.model.transformer.num_layers=1',
  '--config.batch=12',
  '--config.batch_eval=12',
  '--config.accum_steps=1',
  '--config.optimizer=sgd',
  '--config.optim_dtype=float32',
  '--config.base_lr=0.1',
  '--config.total_steps=36',
  '--config.progress_every=1',
  '--config.eval_every=6',
  '--config.checkpoint_every=6',
)


@pytest.fixture(scope='module', autouse=True)
def quick_compilation():
  """Most of the time of these tests would be XLA's, optimising for seconds."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setenv('JAX_DISABLE_MOST_OPTIMIZATIONS', '1')
    yield


@pytest.fixture(scope='module')
def unbroken(tmp_path_factory):
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


def with_flags(count, *args):
  """Starts processes that are told by flags which they are."""
  address = f'127.0.0.1:{free_port()}'
  return [
    start(
      *args,
      f'--coordinator_address={address}',
      f'--num_processes={count}',
      f'--process_id={i}',
    )
    for i in range(count)
  ]


def with_variables(count, *args):
  """As `with_flags`, by JAX's environment variables."""
  address = f'127.0.0.1:{free_port()}'
  return [
    start(
      *args,
      JAX_COORDINATOR_ADDRESS=address,
      JAX_NUM_PROCESSES=str(count),
      JAX_PROCESS_ID=str(i),
    )
    for i in range(count)
  ]


def with_slurm(count, *args):
  """Starts processes in the environment that srun gives its tasks."""
  return [
    start(
      *args,
      SLURM_JOB_ID='4242',
      SLURM_STEP_NODELIST='127.0.0.1',
      SLURM_STEP_NUM_NODES='1',
      SLURM_STEP_NUM_TASKS=str(count),
      SLURM_NTASKS=str(count),
      SLURM_PROCID=str(i),
      SLURM_LOCALID=str(i),
      JAX_COORDINATOR_PORT=str(port),
    )
    for port in [free_port()]
    for i in range(count)
  ]


def saved_steps(workdir):
  """Steps of the whole checkpoints."""
  names = [p.name for p in (workdir / 'checkpoints').glob('*')]
  return {int(name) for name in names if name.isdigit()}


def assert_codes(ended, codes):
  """Checks exit codes; shows the output of every process that has another one."""
  texts = [
    f'Process {i} ended with {result.returncode}:\n{result.stderr[-5000:]}'
    for i, (result, code) in enumerate(zip(ended, codes, strict=True))
    if result.returncode != code
  ]
  assert not texts, '\n'.join(texts)


def last_line(result):
  return result.stderr.strip().splitlines()[-1]


def assert_leaves(code, line):
  """Checks that a process with this code exits with 1 and ends its output so."""
  with running([start_command(sys.executable, '-c', code)]) as results:
    [result] = results()
  assert result.returncode == 1
  assert last_line(result) == line


def test_a_process_that_cannot_tell_the_others_ends_too():
  """As where the thread that has JAX's locks sleeps after an abort."""
  code = (
    'import threading\n'
    'from vit_jax.runtime import hosts\n'
    'hosts._GRACE_SECONDS = 0.1\n'
    'hosts._tell_others = threading.Event().wait\n'
    "hosts._leave('the reason.')"
  )
  assert_leaves(code, '-c: the reason.')


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


def test_a_native_thread_that_aborts_ends_the_process_with_a_last_line():
  code = (
    'import ctypes, threading\n'
    'from vit_jax.runtime import exits, hosts\n'
    'hosts._tell_others = lambda: None\n'
    'exits.on_abort(hosts._leave_at_abort)\n'
    'thread = threading.Thread(target=ctypes.CDLL(None).abort)\n'
    'thread.start()\n'
    'thread.join()'
  )
  assert_leaves(
    code,
    '-c: A library aborted this process, as when another process is lost: its lines'
    ' above say why. Start all of them again: they continue from the newest'
    ' checkpoint.',
  )


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


@pytest.mark.slow
def test_a_process_that_hangs_ends_the_other_with_a_last_line(
  unbroken, tmp_path
):
  """Its connections stay open, so that JAX alone notices, and aborts."""
  stop = signalled(
    unbroken[0], tmp_path / 'run', signal.SIGSTOP, 13, *SETTINGS, process=1
  )
  processes = with_flags(2, *stop, '--heartbeat_timeout=10')
  with running(processes) as results:
    wait_for(lambda: processes[0].poll() is not None)
    processes[1].kill()
    ended = results()
  assert_codes(ended, [1, -signal.SIGKILL])
  line = last_line(ended[0])
  assert line.startswith(
    'vit_jax.main: A library aborted this process, as when'
  )
  assert line.endswith('they continue from the newest checkpoint.')


@pytest.mark.slow
def test_processes_fail_together(image_folder, tmp_path):
  args = arguments(image_folder, tmp_path, '--config.pretrained=nothing')
  with running(with_variables(2, *args)) as results:
    for result in results():
      assert result.returncode == 1
      assert 'nothing.npz is missing' in last_line(result)


@pytest.mark.slow
def test_one_process_that_fails_stops_the_other(image_folder, tmp_path):
  """By an image that is in the first part of process 1."""
  source = sources.get_source(str(image_folder), 'train')
  order = grain.MapDataset.source(range(len(source))).seed(0).shuffle()
  name = source[order[6]]['name']  # The seventh of twelve in the first batch.
  pathlib.Path(name).write_text('no image')
  less = (  # To compile.
    '--config.model.transformer.dropout_rate=0.0',
    '--config.stochastic_depth_rate=0.0',
  )
  args = arguments(image_folder, tmp_path / 'run', *SETTINGS, *less)
  with running(with_variables(2, *args)) as results:
    lost, failed = results()
  assert (lost.returncode, failed.returncode) == (1, 1)
  assert f'{name} cannot be decoded' in last_line(failed)
  assert 'Another process was lost' in last_line(lost)


@pytest.mark.slow
def test_a_workdir_that_is_not_shared_is_refused(image_folder, tmp_path):
  address = f'127.0.0.1:{free_port()}'
  processes = [
    start(
      *arguments(image_folder, tmp_path / str(i)),
      f'--coordinator_address={address}',
      '--num_processes=2',
      f'--process_id={i}',
    )
    for i in range(2)
  ]
  with running(processes) as results:
    for result in results():
      assert result.returncode == 1
      assert 'processes [1] do not see what process 0' in last_line(result)


def test_clusters_are_detected():
  assert not hosts.is_cluster({})
  assert not hosts.is_cluster({'SLURM_NTASKS': '8'})  # Not within srun.
  assert hosts.is_cluster({'SLURM_STEP_NUM_TASKS': '8'})
  assert hosts.is_cluster({'OMPI_COMM_WORLD_SIZE': '2'})
  assert hosts.is_cluster({'TPU_WORKER_HOSTNAMES': 'host0,host1'})
  assert hosts.is_cluster({'JAX_COORDINATOR_ADDRESS': 'host:1234'})
