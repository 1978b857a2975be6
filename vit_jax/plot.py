"""Pictures of numbers, by matplotlib."""

from collections.abc import Mapping, Sequence
import pathlib

Line = tuple[Sequence[int | float], Sequence[int | float]]


def curves(
  path: pathlib.Path,
  panels: Mapping[str, Mapping[str, Line]],
  *,
  x: str,
  log_x: bool = False,
) -> None:
  """Writes a PNG of lines, in panels side by side.

  Args:
    path: of the file.
    panels: by what is on their y axis: by their names, lines (xs, ys).
    x: what is on the x axis.
    log_x: whether that is logarithmic, with a tick at each point.
  """
  # Imported late, as it takes a second; without a window, on any thread.
  from matplotlib.figure import Figure

  figure = Figure(figsize=(5 * len(panels), 3.5), layout='constrained')
  all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
  for axes, (title, lines) in zip(all_axes, panels.items(), strict=True):
    for name, (xs, ys) in lines.items():
      points = sorted(zip(xs, ys, strict=True))
      marker = 'o' if len(points) < 50 else None
      axes.plot(*zip(*points, strict=True), marker=marker, ms=4, label=name)
      if log_x:
        axes.set_xscale('log')
        axes.set_xticks(sorted(xs), [f'{px:g}' for px in sorted(xs)])
        axes.minorticks_off()
    if len(lines) > 1:
      axes.legend()
    axes.set_xlabel(x)
    axes.set_ylabel(title)
    axes.grid(alpha=0.3)
  figure.savefig(path, dpi=150)
