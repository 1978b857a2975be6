"""How processes end: their last line, and Ctrl-C."""

import os
import signal
import subprocess
import sys
import textwrap

import counting_loop
import jax.numpy as jnp
from processes import HANG_SECONDS
from processes import running
from processes import start_command
import pytest

from vit_jax.runtime import preemption


def run_code(code, **environment):
  command = (sys.executable, '-c', textwrap.dedent(code))
  with running([start_command(*command, **environment)]) as results:
    [result] = results()
  return result


def test_nothing_comes_after_the_last_line():
  """As of threads of gRPC, which know nothing of Python."""
  result = run_code("""
    import os, sys, threading, time
    from vit_jax.runtime import exits

    wrote = threading.Event()

    def write():
      while True:
        os.write(2, b'Socket closed\\n')
        wrote.set()
        time.sleep(0.001)  # A full pipe would hold lines back.

    for _ in range(4):
      threading.Thread(target=write, daemon=True).start()
    wrote.wait()
    exits.write_last_line('the reason.')
    wrote.clear()
    wrote.wait()
    print('too late', file=sys.stderr)
    sys.exit(3)
  """)
  assert result.returncode == 3
  lines = result.stderr.splitlines()
  assert lines[-1] == '-c: the reason.'
  assert set(lines[:-1]) == {'Socket closed'}


def test_an_abort_of_a_native_thread_keeps_the_exit_code():
  """As of XLA or gloo, which abort when other processes are lost."""
  result = run_code("""
    import ctypes, os, threading, time
    from vit_jax.runtime import exits

    exits.pause_aborts()
    abort = threading.Thread(target=ctypes.CDLL(None).abort, daemon=True)
    abort.start()
    abort.join(0.2)
    assert abort.is_alive()
    exits.write_last_line('the reason.')
    os._exit(1)
  """)
  assert result.returncode == 1, result.stderr
  assert result.stderr == '-c: the reason.\n'


def test_ctrl_c_ends_a_command_that_is_not_in_python():
  """As while XLA compiles; what was printed before is not lost."""
  result = run_code("""
    import ctypes, os, signal
    from vit_jax.runtime import exits

    exits.on_interrupt()
    print('printed')
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    os.kill(os.getpid(), signal.SIGINT)
    ctypes.CDLL(None).sleep(100000)
  """)
  assert result.returncode == 130
  assert result.stdout == 'printed\n'
  assert result.stderr == '-c: interrupted.\n'


@pytest.mark.skipif(sys.platform != 'linux', reason='needs /proc')
def test_a_starting_worker_prints_nothing():
  """Its task is larger than the buffer of a pipe."""
  result = run_code("""
    import multiprocessing, pathlib, threading
    from vit_jax.runtime import exits

    def is_starting():
      files = pathlib.Path('/proc/self/task').glob('*/children')
      pids = [pid for file in files for pid in file.read_text().split()]
      names = [pathlib.Path(f'/proc/{pid}/cmdline') for pid in pids]
      # The code of this test is a part of its own command line.
      return any(b'spawn_' + b'main' in name.read_bytes() for name in names)

    context = multiprocessing.get_context('spawn')
    process = context.Process(target=len, args=(bytes(10**7),))
    threading.Thread(target=process.start, daemon=True).start()
    while not is_starting():
      pass
    exits.leave_interrupted()
  """)
  assert result.returncode == 130
  assert [x for x in result.stderr.splitlines() if 'tracker' not in x] == [
    '-c: interrupted.'
  ]


@pytest.mark.parametrize('moment', ['before', 'while it ends', 'at the end'])
def test_ctrl_c_ends_a_command_that_restarts(moment):
  """Else the new process goes on, and without a stderr."""
  result = run_code(
    """
    import os, signal, threading, time
    from vit_jax.runtime import exits

    moment = os.environ['MOMENT']
    exits.on_interrupt()
    if moment == 'over':
      threading.Event().wait(30)
      raise SystemExit('was not interrupted')

    def interrupt():
      os.kill(os.getpid(), signal.SIGINT)

    sleep, execve = time.sleep, os.execve
    if moment == 'while it ends':  # The other thread has begun to.
      time.sleep = lambda _: sleep(2)
      interrupt()
      sleep(0.5)
    elif moment == 'before':
      interrupt()
    else:
      os.execve = lambda *args: (interrupt(), execve(*args))
    exits.restart(os.environ | {'MOMENT': 'over'})
    """,
    MOMENT=moment,
  )
  assert result.stderr == '-c: interrupted.\n'
  assert result.returncode == 130


def test_ignored_ctrl_c_stays_ignored():
  result = run_code("""
    import os, signal
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from vit_jax.runtime import exits

    exits.on_interrupt()
    os.kill(os.getpid(), signal.SIGINT)
    print('goes on')
  """)
  assert result.stdout == 'goes on\n'


def test_a_command_asks_once_and_then_ends():
  result = run_code("""
    import os, signal, threading
    from vit_jax.runtime import exits

    exits.on_interrupt()
    asked = threading.Event()
    exits.ask_first(asked.set)
    os.kill(os.getpid(), signal.SIGINT)
    asked.wait()
    print('asked')
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait()
  """)
  assert (result.returncode, result.stdout) == (130, 'asked\n')
  assert result.stderr == '-c: interrupted.\n'


@pytest.mark.parametrize(
  'words',
  ['-m vit_jax.main', '-m vit_jax sweep', '-m vit_jax train'],
)
def test_ctrl_c_during_imports_gives_one_line(words, tmp_path):
  code = 'import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n'
  (tmp_path / 'jax.py').write_text(f'{code}while True: pass\n')
  process = start_command(
    sys.executable, *words.split(), PYTHONPATH=f'{tmp_path}:.'
  )
  with running([process]) as results:
    [result] = results()
  assert result.returncode == 130
  assert result.stderr.startswith(('vit_jax.main: ', 'vit-jax '))
  assert result.stderr.endswith(': interrupted.\n')
  assert len(result.stderr.splitlines()) == 1


def steps_until(number, at):
  """Returns a step that gets a signal while it is made."""

  def step(state, batch, key):
    if int(state.step) == at - 1:
      signal.raise_signal(number)
    return state.replace(step=state.step + 1), {'train_loss': jnp.array(1.0)}

  return step


def saved(tmp_path):
  return {int(p.name) for p in (tmp_path / 'checkpoints').iterdir()}


STOPS = [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]


@pytest.mark.parametrize('at', [3, 20])
@pytest.mark.parametrize('number, error', STOPS)
def test_a_stop_during_a_step_saves_it(number, error, at, tmp_path):
  with pytest.raises(error):
    counting_loop.run(tmp_path, step=steps_until(number, at))
  assert saved(tmp_path) == {at}
  assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize('at', [5, 20])
@pytest.mark.parametrize('number, error', STOPS)
def test_a_stop_during_an_evaluation_ends_it_and_saves(
  number, error, at, tmp_path
):
  batches = []

  def accuracies():
    yield from [0.5] * (at // 5 - 1)
    for i in range(3):
      preemption.check()
      batches.append(i)
      signal.raise_signal(number)

  with pytest.raises(error):
    counting_loop.run(tmp_path, accuracies=accuracies(), eval_every=5)
  assert batches == [0]
  assert at in saved(tmp_path)


@pytest.mark.parametrize('number, error', STOPS)
def test_a_stop_while_waiting_for_a_batch_saves(number, error, tmp_path):
  def batches():
    yield from [{}] * 3
    signal.raise_signal(number)
    while True:
      preemption.check()

  with pytest.raises(error):
    counting_loop.run(tmp_path, batches=batches())
  assert saved(tmp_path) == {3}


def test_sigterm_before_there_is_a_batch_saves_nothing(tmp_path):
  def batches():
    signal.raise_signal(signal.SIGTERM)
    preemption.check()
    yield {}

  with pytest.raises(SystemExit):
    counting_loop.run(tmp_path, batches=batches())
  assert not saved(tmp_path)


@pytest.mark.parametrize('number, error', STOPS)
def test_a_stop_after_the_last_question_is_not_lost(number, error, tmp_path):
  def accuracies():
    yield 0.5
    signal.raise_signal(number)  # And no batch comes after it.
    yield 0.6

  with pytest.raises(error):
    counting_loop.run(tmp_path, accuracies=accuracies(), eval_every=10)
  assert 20 in saved(tmp_path)


def test_a_second_ctrl_c_does_not_wait(tmp_path):
  """In a notebook: nothing is saved after it."""
  step = steps_until(signal.SIGINT, 3)

  def twice(state, batch, key):
    state, metrics = step(state, batch, key)
    if int(state.step) == 3:
      signal.raise_signal(signal.SIGINT)
    return state, metrics

  with pytest.raises(KeyboardInterrupt):
    counting_loop.run(tmp_path, step=twice)
  assert not saved(tmp_path)


def test_ctrl_c_before_the_first_step_is_done_saves_nothing(tmp_path):
  with pytest.raises(KeyboardInterrupt):
    counting_loop.run(tmp_path, step=steps_until(signal.SIGINT, 1))
  assert not saved(tmp_path)


@pytest.mark.parametrize('unbuffered', ['', '1'])
@pytest.mark.parametrize('words', [['--help'], ['predict', '--help']])
def test_output_that_nobody_reads_ends_a_command_quietly(words, unbuffered):
  """As `vit-jax predict --help | head -1`."""
  with subprocess.Popen(
    [sys.executable, '-m', 'vit_jax', *words],
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    env={**os.environ, 'PYTHONUNBUFFERED': unbuffered},
  ) as process:
    process.stdout.close()
    assert process.stderr.read() == b''
    assert process.wait(HANG_SECONDS) == 141
