"""Several processes that train as one: how they meet, and how they fail."""

from collections.abc import Iterator, Mapping
import contextlib
import os
import secrets
import threading
import time
from typing import Any, NoReturn

from absl import logging
import jax

# JAX has no public key-value store of its processes, which `_leave` needs.
from jax._src import distributed
from jax.experimental import multihost_utils
import numpy as np
import orbax.checkpoint as ocp

from vit_jax.runtime import errors
from vit_jax.runtime import exits
from vit_jax.runtime import storage

# Set for each of several tasks: by users of JAX, and by srun and Open MPI.
_CLUSTER_VARIABLES = ('JAX_COORDINATOR_ADDRESS', 'COORDINATOR_ADDRESS')
_CLUSTER_SIZES = ('SLURM_STEP_NUM_TASKS', 'OMPI_COMM_WORLD_SIZE')

# Processes that leave after an error set a key here. Process 0 waits this long for
# the next one, as killed processes never do.
_LEFT = 'vit_jax/left'
_GRACE_SECONDS = 15

_GO_ON = 'Start all of them again: they continue from the newest checkpoint.'

# How long a process that failed waits for the others to fail too.
_AGREEMENT_SECONDS = 60
_DAY = 24 * 60 * 60


def is_cluster(environment: Mapping[str, str]) -> bool:
  """Whether the environment is that of one of several processes."""
  if any(environment.get(name) for name in _CLUSTER_VARIABLES):
    return True
  if any(int(environment.get(name) or 1) > 1 for name in _CLUSTER_SIZES):
    return True
  return ',' in environment.get('TPU_WORKER_HOSTNAMES', '')


def start(
  mode: str,
  *,
  coordinator_address: str | None = None,
  num_processes: int | None = None,
  process_id: int | None = None,
  heartbeat_timeout: int = 100,
) -> None:
  """Joins the other processes.

  Args:
    mode: 'on', 'off' or 'auto', which joins with an address or if `is_cluster`.
    coordinator_address: 'host:port' of process 0; None for
      $JAX_COORDINATOR_ADDRESS, or what `jax.distributed` detects.
    num_processes: number of processes; None for $JAX_NUM_PROCESSES.
    process_id: index of this process; None for $JAX_PROCESS_ID.
    heartbeat_timeout: seconds of silence after which a process counts as lost.
  """
  several = coordinator_address or is_cluster(os.environ)
  if mode == 'off' or (mode == 'auto' and not several):
    return
  logging.info('Waiting for the other processes, at most 5 minutes.')
  try:
    jax.distributed.initialize(
      coordinator_address,
      _or_variable(num_processes, 'JAX_NUM_PROCESSES'),
      _or_variable(process_id, 'JAX_PROCESS_ID'),
      heartbeat_timeout_seconds=heartbeat_timeout,
    )
  except (ValueError, RuntimeError) as e:
    raise errors.UserError(
      f'The other hosts cannot be joined: {_first_line(e)} Set'
      f' coordinator_address=HOST:PORT, num_processes=N and process_id=I, or'
      f' distributed=off.'
    ) from e
  exits.on_abort(_leave_at_abort)


def _or_variable(value: int | None, name: str) -> int | None:
  text = os.environ.get(name)
  return int(text) if value is None and text else value


def _first_line(error: Exception) -> str:
  line = errors.first_line(error)
  return line if line.endswith('.') else f'{line}.'


def check_shared(workdir: storage.Path) -> None:
  """Raises `errors.UserError` unless all processes see the files of process 0."""
  if jax.process_count() == 1:
    return
  token = np.int32(secrets.randbelow(2**31))
  token = multihost_utils.broadcast_one_to_all(token)
  path = workdir / f'.shared-{token}'
  if jax.process_index() == 0:
    path.write_text('')
  multihost_utils.sync_global_devices('written')
  seen = multihost_utils.process_allgather(np.array(path.exists()))
  if jax.process_index() == 0:
    path.unlink()
  if not seen.all():
    raise errors.UserError(
      f'workdir={workdir} is not the same on all hosts: processes'
      f' {np.flatnonzero(~seen).tolist()} do not see what process 0 writes'
      f' there. Give a folder that they share, or a bucket.'
    )


@contextlib.contextmanager
def failing_together() -> Iterator[None]:
  """Ends this process at any error if there are others, which would wait."""
  try:
    with noticing_losses():
      yield
  except Exception as e:
    if jax.process_count() == 1:
      raise
    if isinstance(e, errors.UserError):
      _leave(str(e))
    logging.exception('Process %d failed.', jax.process_index())
    _leave(f'{type(e).__name__}: {_first_line(e)}')


@contextlib.contextmanager
def noticing_losses() -> Iterator[None]:
  """Ends this process when another one is lost, before anything waits for it."""
  try:
    yield
  except jax.errors.JaxRuntimeError as e:
    if jax.process_count() == 1 or 'RESOURCE_EXHAUSTED' in str(e):
      raise
    _leave(f'Another process was lost: {_first_line(e)} {_GO_ON}')


@contextlib.contextmanager
def agreeing(name: str) -> Iterator[None]:
  """Raises `errors.UserError` in all processes if one of them does.

  No process can continue alone: the others may wait for it in the middle of a
  step. If they do not end here in time, this one exits, which ends them too.
  `name` must be unique in the program.
  """
  error = None
  try:
    yield
  except errors.UserError as e:
    error = e
  if jax.process_count() > 1:
    seconds = _DAY if error is None else _AGREEMENT_SECONDS
    meet = ocp.multihost.get_barrier_sync_fn()
    try:
      meet(key=f'agreeing {name}', timeout_ms=1000 * seconds)
    except jax.errors.JaxRuntimeError:
      if error is not None:
        _leave(str(error))
      raise
    failed = multihost_utils.process_allgather(np.array(error is not None))
    if error is None and failed.any():
      raise errors.UserError(
        f'processes {np.flatnonzero(failed).tolist()} failed; their logs say why.'
      )
  if error is not None:
    raise error


def _leave_at_abort() -> NoReturn:
  _leave(
    f'A library aborted this process, as when another process is lost: its lines above'
    f' say why. {_GO_ON}'
  )


def _leave(line: str) -> NoReturn:
  """Exits with 1 at once, with a last line.

  A regular exit waits for all processes, in JAX and in orbax; but some are gone,
  or wait for this one.
  """
  logging.debug('Details:', exc_info=True)
  exits.pause_aborts()
  exits.write_last_line(line, kills_workers=True)
  # A thread that paused may hold what the client waits for: that has an end.
  telling = threading.Thread(target=_tell_others, daemon=True)
  telling.start()
  telling.join(
    _GRACE_SECONDS * (1 if jax.process_index() else jax.process_count())
  )
  os._exit(1)


def _tell_others() -> None:
  client: Any = distributed.global_state.client
  with contextlib.suppress(jax.errors.JaxRuntimeError):
    if jax.process_index():
      client.key_value_set(f'{_LEFT}/{jax.process_index()}', '')
    else:
      _wait_for_others(client)


def _wait_for_others(client: Any) -> None:
  """Makes process 0 the last: JAX would end the others before their last line."""
  count, end = 0, time.monotonic() + _GRACE_SECONDS
  while count < jax.process_count() - 1 and time.monotonic() < end:
    time.sleep(0.1)
    left = len(client.key_value_dir_get(_LEFT))
    if left > count:
      count, end = left, time.monotonic() + _GRACE_SECONDS
  time.sleep(1)  # The last of the others must still exit.
