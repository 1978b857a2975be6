"""Notices that a run is to stop soon, so that it can save first."""

import signal
import threading
from typing import Any

import jax
from jax.experimental import multihost_utils


class Preemption:
  """Turns SIGTERM into a question that the training loop asks after a step.

  With several processes, JAX's own coordination makes all of them answer yes
  after the same step.
  """

  def __init__(self):
    self._received = threading.Event()
    self._previous = None
    # Python allows handlers in the main thread alone.
    self._handles = (
      jax.process_count() == 1
      and threading.current_thread() is threading.main_thread()
    )

  def __enter__(self) -> 'Preemption':
    if self._handles:
      self._previous = signal.signal(signal.SIGTERM, self._on_signal)
    return self

  def __exit__(self, *unused_error) -> None:
    if self._handles:
      signal.signal(signal.SIGTERM, self._previous)

  def _on_signal(self, *unused_args: Any) -> None:
    self._received.set()

  def requested(self, step: int) -> bool:
    """Whether to save and stop after this step."""
    if jax.process_count() > 1:
      return multihost_utils.reached_preemption_sync_point(step)
    return self._received.is_set()
