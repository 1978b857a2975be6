"""Pictures of numbers, by matplotlib."""

from collections.abc import Sequence
import pathlib


def curve(
  path: pathlib.Path,
  xs: Sequence[float],
  ys: Sequence[float],
  *,
  x: str,
  y: str,
  log_x: bool = False,
) -> None:
  """Writes a PNG of points and the line through them.

  Args:
    path: of the file.
    xs: of the points, in any order.
    ys: likewise.
    x: what they are.
    y: likewise.
    log_x: whether the x axis is logarithmic.
  """
  # Imported late, as it takes a second; without a window, on any thread.
  from matplotlib.figure import Figure

  figure = Figure(figsize=(5, 3.5), layout='constrained')
  axes = figure.subplots()
  points = sorted(zip(xs, ys, strict=True))
  axes.plot(*zip(*points, strict=True), marker='o')
  if log_x:
    axes.set_xscale('log')
    axes.set_xticks([px for px, _ in points], [f'{px:g}' for px, _ in points])
    axes.minorticks_off()
  axes.set_xlabel(x)
  axes.set_ylabel(y)
  axes.grid(alpha=0.3)
  figure.savefig(path, dpi=150)
