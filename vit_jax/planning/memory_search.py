"""Which batches fit into memory, found by few compilations.

Memory is near linear in the images a device has at a time, so that a line
through what is known points to the answer, which is then compiled.
"""

import bisect
from collections.abc import Callable, Mapping, Sequence
import dataclasses

import numpy as np

from vit_jax.planning import compilation

_MAX_COMPILATIONS = 5  # For one answer.

# Images a device; more than a few only by eights, which registers hold.
_SIZES = (1, 2, 3, 4, 5, 6, 7, *range(8, 8193, 8))


@dataclasses.dataclass(frozen=True)
class Setting:
  """What is looked for; `batch` is of all devices."""

  batch: int
  accum_steps: int
  remat: str

  def __str__(self) -> str:
    return (
      f'batch {self.batch}, accum_steps {self.accum_steps},'
      f' remat {self.remat or "off"}'
    )


class Search:
  """Compiles settings, each once, and tells which fit."""

  def __init__(
    self,
    compile_setting: Callable[[Setting], compilation.Program],
    limit: int,
    parts: int,
    programs: Mapping[Setting, compilation.Program],
  ):
    """Nothing is compiled yet.

    Args:
      compile_setting: does it.
      limit: bytes a device may hold.
      parts: devices that the batch is split over.
      programs: what is compiled already, one at least.
    """
    self._compile = compile_setting
    self._parts = parts
    self.limit = limit
    self.programs = dict(programs)

  def fits(self, setting: Setting) -> bool:
    """Whether it does; compiles it unless that was done."""
    if setting not in self.programs:
      self.programs[setting] = self._compile(setting)
    program = self.programs[setting]
    return program.fits and program.peak <= self.limit

  def largest_batch(self, accum_steps: int, remat: str) -> Setting | None:
    """Returns the largest batch that fits, None if there is none."""
    return self._last_that_fits(
      [
        Setting(n * self._parts * accum_steps, accum_steps, remat)
        for n in _SIZES
      ]
    )

  def fewest_parts(self, batch: int, remat: str) -> Setting | None:
    """Returns the smallest `accum_steps` of a batch, None if there is none."""
    most = batch // self._parts
    return self._last_that_fits(
      [
        Setting(batch, accum_steps, remat)
        for accum_steps in range(most, 0, -1)
        if most % accum_steps == 0
      ]
    )

  def _last_that_fits(self, settings: Sequence[Setting]) -> Setting | None:
    """Returns the last one, of settings in the order of their images."""
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
    """Returns indices: the last that fits, -1 for none, the first that not."""
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
    """Returns the index of the last one that fits by the line; -1 for none."""
    line = self._line(settings[0].remat)
    if line is None:
      return None
    needed = [np.polyval(line, self._size(s)) + self._sums(s) for s in settings]
    return max((i for i, n in enumerate(needed) if n <= self.limit), default=-1)

  def _line(self, remat: str) -> np.ndarray | None:
    """Returns the bytes of a step as (slope, constant), None if unknown."""
    programs = {
      s: p for s, p in self.programs.items() if s.remat == remat and p.peak
    }
    # A compiler that gave up has tried to do with less.
    known = {s: p for s, p in programs.items() if p.fits} or programs
    if not known:
      return None
    points = {self._size(s): p.peak - self._sums(s) for s, p in known.items()}
    program = next(iter(known.values()))
    # The state and its gradient: what a batch of no images takes.
    points.setdefault(0, 2 * program.parameters + program.optimizer)
    return np.polyfit(*zip(*sorted(points.items())[-2:], strict=True), 1)

  def _kind(self, setting: Setting) -> tuple[str, bool]:
    """Returns what must be equal for memory to grow with the images alone."""
    return setting.remat, setting.accum_steps > 1

  def _size(self, setting: Setting) -> int:
    return setting.batch // (setting.accum_steps * self._parts)

  def _sums(self, setting: Setting) -> int:
    """Returns the bytes of the sums of gradients that accumulation has."""
    program = next(iter(self.programs.values()))
    return program.parameters if setting.accum_steps > 1 else 0
