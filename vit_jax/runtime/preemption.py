"""Notices SIGTERM and Ctrl-C, so that a run saves before it stops."""

import os
import signal
import threading
from typing import Any

from absl import logging
import jax
from jax.experimental import multihost_utils

from vit_jax.runtime import exits

_current: 'Preemption | None' = None


class StopRequestedError(Exception):
  """The run must stop, in an evaluation or while it waits for a batch."""


class Preemption:
  """Turns SIGTERM and Ctrl-C into a question that the loop asks after a step.

  In several processes, JAX's coordination makes all of them answer yes after the
  same step. A second Ctrl-C ends the process at once, and so does the first one
  before there is a step to save.
  """

  def __init__(self, step: int):
    """Starts after `step`."""
    self._received = threading.Event()
    self._interrupted = False
    self._step, self._asks = step, False
    self._previous: Any = None
    # Python allows handlers in the main thread only.
    self._handles = (
      jax.process_count() == 1
      and threading.current_thread() is threading.main_thread()
    )

  def __enter__(self) -> 'Preemption':
    global _current
    _current = self
    if self._handles:
      stop = lambda *unused: self._received.set()
      self._previous = signal.signal(signal.SIGTERM, stop)
    return self

  def __exit__(self, kind: type | None, *unused_error) -> None:
    global _current
    _current = None
    exits.ask_first(None)
    if self._handles:
      signal.signal(signal.SIGTERM, self._previous)
    if kind is None and self.received:  # After the last question.
      self.stop(self._step)

  def _on_interrupt(self) -> None:
    self._interrupted = True
    if jax.process_count() > 1:
      os.kill(os.getpid(), signal.SIGTERM)  # JAX tells the other processes.
    self._received.set()
    logging.warning(
      'Interrupted: this step is saved first. Ctrl-C again stops at once.'
    )

  @property
  def received(self) -> bool:
    """Whether a single process must stop; several processes use `requested`."""
    return self._received.is_set() and jax.process_count() == 1

  def requested(self, step: int) -> bool:
    """Whether to save and stop after this step."""
    if not self._asks:  # From now on there is something to save.
      exits.ask_first(self._on_interrupt)
    self._step, self._asks = step, True
    if jax.process_count() > 1:
      return multihost_utils.reached_preemption_sync_point(step)
    return self.received

  def stop(self, step: int) -> None:
    """Ends the run, whose state of `step` is being saved.

    Raises KeyboardInterrupt after Ctrl-C, SystemExit(0) after SIGTERM.
    """
    why = 'Interrupted' if self._interrupted else 'Preempted'
    logging.warning(
      '%s: saving step %d; the same command continues.', why, step
    )
    if self._interrupted:
      raise KeyboardInterrupt
    raise SystemExit(0)


def check() -> None:
  """Raises `StopRequestedError` if the run of this process must stop.

  Evaluations and waits would outlast the time before a kill. Several processes
  finish them: they must all do the same, and agree only after steps.
  """
  if _current and _current.received:
    raise StopRequestedError
