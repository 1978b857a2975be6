"""Traces of training steps for TensorBoard and Perfetto."""

from collections.abc import Sequence
import os
from typing import Any

from absl import logging
import jax


class Profile:
  """Records steps into `plugins/profile/<time>/` of a folder.

  Writes `*.xplane.pb` for TensorBoard's profile plugin and
  `perfetto_trace.json.gz` for ui.perfetto.dev.
  """

  def __init__(self, steps: Sequence[int], folder: os.PathLike | str):
    """Traces `steps`, (first, last); () for none."""
    self._first, self._last = steps or (0, 0)
    self._folder = os.fspath(folder)
    self._running = False

  def __enter__(self) -> 'Profile':
    return self

  def __exit__(self, *unused_error) -> None:
    self._stop()

  def before(self, step: int) -> None:
    """Starts the trace at the first step."""
    if not self._running and self._first <= step <= self._last:
      jax.profiler.start_trace(self._folder, create_perfetto_trace=True)
      self._running = True

  def after(self, step: int, results: Any) -> None:
    """Waits for the results of the last step, then writes the trace."""
    if step == self._last:
      jax.block_until_ready(results)
      self._stop()

  def _stop(self) -> None:
    if self._running:
      self._running = False
      jax.profiler.stop_trace()
      logging.info('A trace of training steps is in %s.', self._folder)
