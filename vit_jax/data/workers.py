"""Threads and processes that read batches, and that end with this process."""

from collections.abc import Iterator
from concurrent import futures
import contextlib
import functools
import multiprocessing
import multiprocessing.resource_tracker
import os
import signal
import threading

import grain
import numpy as np

from vit_jax.runtime import preemption

Batch = dict[str, np.ndarray]

_CHECK_SECONDS = 0.1  # How often a waiting loop checks whether to stop.


def batches(
  dataset: grain.MapDataset, num_threads: int, num_workers: int, prefetch: int
) -> Iterator[Batch]:
  """Yields the batches of a dataset, read by threads or worker processes.

  Args:
    dataset: batches by step.
    num_threads: reading threads in each process.
    num_workers: worker processes; 0 reads in this one.
    prefetch: number of batches to prepare ahead.
  """
  options = grain.ReadOptions(
    num_threads=num_threads, prefetch_buffer_size=prefetch
  )
  dataset = dataset.to_iter_dataset(options)
  if num_workers:
    workers = grain.MultiprocessingOptions(num_workers=num_workers)
    yield from _iterate_workers(dataset.mp_prefetch(workers))
    return
  with contextlib.closing(iter(dataset)) as found:  # Ends its threads.
    yield from found


def _iterate_workers(dataset: grain.IterDataset) -> Iterator[Batch]:
  """Iterates in a separate thread; stops waiting when the run must stop.

  Ctrl-C must not raise in the main thread while Grain holds a lock.
  """
  # Started later, it would unblock the signals.
  multiprocessing.resource_tracker.ensure_running()
  thread = futures.ThreadPoolExecutor(1, initializer=_block_signals)
  batches = thread.submit(iter, dataset).result()
  try:
    while True:
      future = thread.submit(next, batches, None)
      while not futures.wait([future], _CHECK_SECONDS).done:
        preemption.check()
      if (batch := future.result()) is None:
        return
      yield batch
  finally:
    # Not awaited: it takes until each worker, even one that is only starting, has
    # made a batch.
    with contextlib.suppress(RuntimeError):  # Python ends, and Grain closes it.
      thread.submit(batches.close)
    thread.shutdown(wait=False)


def _block_signals() -> None:
  """Keeps Ctrl-C and SIGTERM from the workers, which inherit the blocked mask.

  Terminals and schedulers send them to all processes, but a run that saves first
  needs its workers until then. They end with it, see `end_with_parent`.
  """
  signals = {signal.SIGINT, signal.SIGTERM}
  signal.pthread_sigmask(signal.SIG_BLOCK, signals)


@functools.cache  # Once per process.
def end_with_parent() -> None:
  """Makes a worker end with the process that started it, however that ends."""
  if parent := multiprocessing.parent_process():

    def wait() -> None:
      parent.join()
      os._exit(1)  # The parent was killed: nobody waits for the batches.

    threading.Thread(target=wait, daemon=True).start()
