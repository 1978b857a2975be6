"""Notices that a run is to stop soon, so that it can save first."""

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
  """The run is to stop, amid an evaluation or while it waits for a batch."""


class Preemption:
  """Turns SIGTERM and Ctrl-C into a question that the loop asks after a step.

  With several processes, JAX's own coordination makes all of them answer yes
  after the same step. A second Ctrl-C ends the process at once, and so does the
  first one before there is a step to save.
  """

  def __init__(self, step: int):
    """Takes the step that the run begins after."""
    self._received = threading.Event()
    self._interrupted = False
    self._step, self._asks = step, False
    self._previous = None
    # Python allows handlers in the main thread alone.
    self._handles = (
      jax.process_count() == 1
      and threading.current_thread() is threading.main_thread()
    )

  def __enter__(self) -> 'Preemption':
    global _current
    _current = self
    if self._handles:
      self._previous = signal.signal(signal.SIGTERM, self._on_signal)
    return self

  def __exit__(self, kind: type | None, *unused_error) -> None:
    global _current
    _current = None
    exits.ask_first(None)
    if self._handles:
      signal.signal(signal.SIGTERM, self._previous)
    if kind is None and self.received:  # Since it was asked.
      self.stop(self._step)

  def _on_signal(self, *unused_args: Any) -> None:
    self._received.set()

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
    """Whether the run was asked to stop; several processes only ask each other."""
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

    Raises:
      KeyboardInterrupt: after Ctrl-C.
      SystemExit: 0, after SIGTERM.
    """
    why = 'Interrupted' if self._interrupted else 'Preempted'
    logging.warning('%s: saving step %d; the same command goes on.', why, step)
    if self._interrupted:
      raise KeyboardInterrupt
    raise SystemExit(0)


def check() -> None:
  """Stops an evaluation, or a wait, which would outlast the time before a stop.

  Several processes finish it: they have to do the same, and agree after steps
  alone.

  Raises:
    StopRequestedError: if the run of this process is to stop.
  """
  if _current and _current.received:
    raise StopRequestedError
