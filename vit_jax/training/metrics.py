"""Writes metrics to `metrics.jsonl`, loggers, the log and a progress bar."""

from collections.abc import Callable, Mapping, Sequence
import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from typing import Any

from absl import logging
import jax
import tqdm

from vit_jax.runtime import files
from vit_jax.runtime import storage
from vit_jax.runtime import workdir as workdir_lib
from vit_jax.training import loggers as loggers_lib

Row = dict[str, int | float]


def parse(content: bytes) -> list[Row]:
  """Returns the undamaged lines of `metrics.jsonl`.

  A killed run may leave an incomplete last line.
  """
  rows = []
  for line in content.splitlines():
    try:
      row = json.loads(line)
      if {type(row['step']), *map(type, row.values())} <= {int, float}:
        rows.append(row)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
      continue
  return rows


class Writer:
  """Writes the metrics of a step, on process 0 only."""

  def __init__(
    self,
    workdir: os.PathLike | str,
    first_step: int,
    *,
    loggers: Sequence[str] = ('tensorboard',),
    config: Mapping[str, Any] | None = None,
  ):
    """Opens the files; removes lines of steps that will be run again.

    The workdir may be in a bucket. `loggers.make` raises if one cannot start;
    `config` has the settings that they show.
    """
    self._enabled = jax.process_index() == 0
    if not self._enabled:
      return
    run = local = workdir_lib.at(workdir)
    self._address = None
    if storage.is_address(workdir):  # Files in a bucket cannot grow.
      self._address = run.folder
      local = workdir_lib.at(tempfile.mkdtemp())
      if run.metrics.exists():
        files.write_text(run.metrics.read_text(encoding='utf-8'), local.metrics)
    self._folder, self._path = local.folder, local.metrics
    self._drop_from(first_step)
    self._loggers = loggers_lib.make(
      loggers, run, self._folder, config or {}, first_step
    )

  def _drop_from(self, first_step: int) -> None:
    if not self._path.exists():
      return
    lines = [
      json.dumps(row) + '\n'
      for row in parse(self._path.read_bytes())
      if row['step'] < first_step
    ]
    files.write_text(''.join(lines), self._path)

  def write(self, step: int, values: dict[str, float]) -> None:
    """Writes a line and a point of each curve; drops loggers that fail."""
    if not self._enabled:
      return
    with open(self._path, 'a', encoding='utf-8') as f:
      f.write(json.dumps({'step': step, **values}) + '\n')
    self._with_each_logger(lambda logger: logger.write(step, values))
    text = ', '.join(f'{name}: {value:.5g}' for name, value in values.items())
    with tqdm.tqdm.external_write_mode(sys.stderr):  # Keeps the bar intact.
      logging.info('Step %d: %s', step, text)

  def sync(self) -> None:
    """Copies the files to the workdir, if that is in a bucket."""
    if self._enabled and self._address is not None:
      self._with_each_logger(lambda logger: logger.flush())
      storage.upload(self._folder, self._address)

  def close(self) -> None:
    """Writes pending metrics and closes the files."""
    if not self._enabled:
      return
    self._with_each_logger(lambda logger: logger.close())
    if self._address is not None:
      storage.upload(self._folder, self._address)
      shutil.rmtree(self._folder)

  def _with_each_logger(
    self, call: Callable[[loggers_lib.Logger], None]
  ) -> None:
    """Calls a function with each logger; closes and drops those that fail."""
    for logger in list(self._loggers):
      try:
        call(logger)
      except Exception as e:  # Each service has its own errors.
        self._loggers.remove(logger)
        logging.warning('%s failed: %s', type(logger).__name__, e)
        with contextlib.suppress(Exception):
          logger.close()


class Progress:
  """A progress bar with ETA on terminals, and the speed of training."""

  def __init__(
    self,
    first_step: int,
    total_steps: int,
    batch_size: int,
    flops_per_image: float,
    peak_flops: float | None,
  ):
    self._bar = tqdm.tqdm(
      total=total_steps,
      initial=first_step,
      unit='step',
      disable=jax.process_index() > 0 or not sys.stderr.isatty(),
    )
    self._batch_size = batch_size
    self._flops_per_image = flops_per_image
    self._peak_flops = peak_flops
    self._step = first_step
    self._start = first_step, 0.0
    self.reset(first_step)

  def __enter__(self) -> 'Progress':
    return self

  def __exit__(self, *unused_error) -> None:
    self._bar.close()

  def completed(self, step: int) -> None:
    """Records that the devices have completed the steps up to `step`."""
    if step > self._step:
      self._bar.update(step - self._step)
      self._step, self._time = step, time.perf_counter()

  def speed(self) -> dict[str, float]:
    """Returns images/s since the last call, in total and per device, and MFU.

    Counts completed steps only; empty if none has been completed since. MFU is the
    share of the peak FLOP/s that a forward and a backward pass of all parameters
    take: frozen ones make it too high, the second gradient of SAM too low.
    """
    steps, seconds = self._step - self._start[0], self._time - self._start[1]
    self._start = self._step, self._time
    if not steps:
      return {}
    images = steps * self._batch_size / seconds
    speed = {
      'img_sec_train': images,
      'img_sec_core_train': images / jax.device_count(),
    }
    if self._peak_flops:
      flops = speed['img_sec_core_train'] * self._flops_per_image
      speed['mfu'] = flops / self._peak_flops
    return speed

  def reset(self, step: int) -> None:
    """Excludes the time until now from `speed`; `step` is complete."""
    self.completed(step)
    self._time = time.perf_counter()
    self._start = self._step, self._time

  def show(self, values: dict[str, float]) -> None:
    """Shows values after the bar."""
    self._bar.set_postfix({k: f'{v:.4g}' for k, v in values.items()})
