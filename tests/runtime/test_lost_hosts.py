"""A process that fails, hangs or is lost ends the others, each with a last line."""

import pathlib
import signal
import sys

import grain
from many_hosts import assert_codes
from many_hosts import last_line
from many_hosts import SETTINGS
from many_hosts import with_flags
from many_hosts import with_variables
from processes import free_port
from processes import running
from processes import start
from processes import start_command
from processes import wait_for
import pytest
from runs import arguments
from runs import signalled

from vit_jax.data import sources

pytestmark = pytest.mark.usefixtures('quick_compilation')


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
def test_a_process_that_hangs_ends_the_other_with_a_last_line(
  image_folder, tmp_path
):
  """Its connections stay open, so that JAX alone notices, and aborts."""
  stop = signalled(
    image_folder, tmp_path / 'run', signal.SIGSTOP, 13, *SETTINGS, process=1
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
