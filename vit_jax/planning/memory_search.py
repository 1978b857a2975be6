"""Finds the batches that fit into memory, by few compilations.

Memory grows nearly linearly with the images that a device has at a time: a line
through known points predicts the answer, which is then compiled.
"""

import bisect
from collections.abc import Callable, Mapping, Sequence
import dataclasses

import numpy as np

from vit_jax.planning import compilation

_MAX_COMPILATIONS = 5  # For one answer.

# Images per device: beyond 7 only multiples of 8, the rows of a register.
_SIZES = (1, 2, 3, 4, 5, 6, 7, *range(8, 8193, 8))


@dataclasses.dataclass(frozen=True)
class Setting:
  """Settings that change memory; `batch` is over all devices."""

  batch: int
  accum_steps: int
  remat: str

  def __str__(self) -> str:
    return (
      f'batch {self.batch}, accum_steps {self.accum_steps},'
      f' remat {self.remat or "off"}'
    )


class Search:
  """Compiles settings, each once, and knows which fit."""

  def __init__(
    self,
    compile_setting: Callable[[Setting], compilation.Program],
    limit: int,
    parts: int,
    programs: Mapping[Setting, compilation.Program],
    least: int = 1,
  ):
    """Compiles nothing yet.

    Args:
      compile_setting: compiles a setting.
      limit: bytes that a device may hold.
      parts: number of devices that the batch is split over.
      programs: at least one setting that is compiled already.
      least: number of images that a part of a batch must have.
    """
    self._compile = compile_setting
    self._parts = parts
    self._least = least
    self.limit = limit
    self.programs = dict(programs)

  def fits(self, setting: Setting) -> bool:
    """Whether a setting fits; compiles it if necessary."""
    if setting not in self.programs:
      self.programs[setting] = self._compile(setting)
    program = self.programs[setting]
    # Whatever fits has a peak.
    return program.fits and (program.peak or 0) <= self.limit

  def largest_batch(self, accum_steps: int, remat: str) -> Setting | None:
    """Returns the largest batch that fits, None if there is none."""
    step = self._parts * accum_steps
    sizes = [n for n in _SIZES if n * self._parts >= self._least]
    settings = [Setting(n * step, accum_steps, remat) for n in sizes]
    return self._last_that_fits(settings)

  def fewest_parts(self, batch: int, remat: str) -> Setting | None:
    """Returns the smallest `accum_steps` of a batch, None if there is none."""
    of_device = batch // self._parts
    most = min(of_device, batch // self._least)
    divisors = [n for n in range(most, 0, -1) if of_device % n == 0]
    return self._last_that_fits([Setting(batch, n, remat) for n in divisors])

  def _last_that_fits(self, settings: Sequence[Setting]) -> Setting | None:
    """Returns the last setting that fits; they are sorted by their memory."""
    low, high = self._known_bounds(settings)
    for _ in range(_MAX_COMPILATIONS):
      guess = self._guess(settings)
      if guess is None:
        guess = (low + high) // 2
      if high - low <= 1 or 0 <= guess == low:
        break
      guess = min(max(guess, low + 1), high - 1)
      if self.fits(settings[guess]):
        low = guess
      else:
        high = guess
    return settings[low] if low >= 0 and self.fits(settings[low]) else None

  def _known_bounds(self, settings: Sequence[Setting]) -> tuple[int, int]:
    """Returns indices of the last that fits, or -1, and the first that does not."""
    sizes = [self._size(s) for s in settings]
    low, high = -1, len(settings)
    for known in self.programs:
      if self._kind(known) != self._kind(settings[0]):
        continue
      if self.fits(known):
        low = max(low, bisect.bisect_right(sizes, self._size(known)) - 1)
      else:
        high = min(high, bisect.bisect_left(sizes, self._size(known)))
    return low, high

  def _guess(self, settings: Sequence[Setting]) -> int | None:
    """Returns the index of the last that fits by the line, -1 if none does."""
    line = self._line(settings[0].remat)
    if line is None:
      return None
    needed = [np.polyval(line, self._size(s)) + self._sums(s) for s in settings]
    return max((i for i, n in enumerate(needed) if n <= self.limit), default=-1)

  def _line(self, remat: str) -> np.ndarray | None:
    """Returns the bytes of a step as (slope, constant), None if unknown."""
    peaks = {
      s: p.peak for s, p in self.programs.items() if s.remat == remat and p.peak
    }
    # A compiler that gave up had tried to use less.
    fit = {s: peak for s, peak in peaks.items() if self.programs[s].fits}
    if not peaks:
      return None
    points = {
      self._size(s): peak - self._sums(s) for s, peak in (fit or peaks).items()
    }
    program = next(iter(self.programs.values()))
    # The state and its gradient, without any image.
    fixed = program.optimizer + program.teacher + program.average
    points.setdefault(0, 2 * program.parameters + fixed)
    sizes, needed = np.transpose(sorted(points.items())[-2:])
    return np.polyfit(sizes, needed, 1)

  def _kind(self, setting: Setting) -> tuple[str, bool]:
    """Returns what must be equal if memory is to depend on the images alone."""
    return setting.remat, setting.accum_steps > 1

  def _size(self, setting: Setting) -> int:
    return setting.batch // (setting.accum_steps * self._parts)

  def _sums(self, setting: Setting) -> int:
    """Returns the bytes of the gradients that accumulation sums up."""
    program = next(iter(self.programs.values()))
    return program.parameters if setting.accum_steps > 1 else 0
