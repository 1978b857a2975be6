"""Pictures of numbers, by matplotlib."""

from collections.abc import Mapping, Sequence
import pathlib
from typing import Any

from jaxtyping import Float
import numpy as np

Line = tuple[Sequence[int | float], Sequence[int | float]]

_COLOURS = 'inferno'  # Of maps: even in lightness, also for the colour-blind.


def _figure(width: int | float, height: int | float) -> Any:
  # Imported late, as it takes a second; without a window, on any thread.
  from matplotlib.figure import Figure

  return Figure(figsize=(width, height), layout='constrained')


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
  figure = _figure(5 * len(panels), 3.5)
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


def points(
  path: pathlib.Path, values: Float[np.ndarray, 'n m'], *, x: str, y: str
) -> None:
  """Writes a PNG with the m values of each of n things above each other."""
  figure = _figure(6, 4)
  axes = figure.subplots()
  places = np.arange(1, len(values) + 1)[:, None]
  axes.scatter(np.broadcast_to(places, values.shape), values, s=14, alpha=0.7)
  axes.set_xlabel(x)
  axes.set_ylabel(y)
  axes.set_ylim(bottom=0)
  axes.xaxis.get_major_locator().set_params(integer=True)
  axes.grid(alpha=0.3)
  figure.savefig(path, dpi=150)


def pictures(
  path: pathlib.Path, images: Mapping[str, Float[np.ndarray, 'H W 3']]
) -> None:
  """Writes a PNG of pictures in rows, their names above them."""
  columns = int(np.ceil(np.sqrt(len(images))))
  rows = -(-len(images) // columns)
  height, width = next(iter(images.values())).shape[:2]
  figure = _figure(3 * columns, 3 * rows * height / width + 0.4 * rows)
  all_axes = figure.subplots(rows, columns, squeeze=False).ravel()
  for axes in all_axes:
    axes.axis('off')
  for axes, (name, image) in zip(all_axes, images.items(), strict=False):
    axes.imshow(np.clip(image, 0, 1))
    axes.set_title(name, fontsize=9)
  figure.savefig(path, dpi=150)


def mosaic(
  path: pathlib.Path,
  tiles: Float[np.ndarray, 'rows columns h w *C'],
  *,
  x: str = '',
  y: str = '',
  title: str = '',
  bar: str = '',
) -> None:
  """Writes a PNG of many small pictures, side by side and above each other.

  Args:
    path: of the file.
    tiles: values for colours, or [..., 3] in [0, 1].
    x: what columns are, counted from 1; '' for no axes.
    y: what rows are.
    title: above all of it.
    bar: what the colours mean; '' for nothing.
  """
  rows, columns, h, w = tiles.shape[:4]
  gap = max(1, h // 16)
  around = ((0, 0), (0, 0), (0, gap), (0, gap)) + ((0, 0),) * (tiles.ndim - 4)
  empty = 1.0 if tiles.ndim > 4 else np.nan
  padded = np.pad(tiles, around, constant_values=empty)
  padded = padded.swapaxes(1, 2)
  padded = padded.reshape(
    rows * (h + gap), columns * (w + gap), *tiles.shape[4:]
  )
  padded = padded[:-gap, :-gap]
  scale = 9 / max(padded.shape[:2])
  figure = _figure(
    padded.shape[1] * scale + (1.5 if bar else 0.6),
    padded.shape[0] * scale + 0.8,
  )
  axes = figure.subplots()
  drawn = axes.imshow(padded, cmap=_COLOURS, interpolation='nearest')
  axes.set_title(title)
  for spine in axes.spines.values():
    spine.set_visible(False)
  axes.set_xticks([]), axes.set_yticks([])
  if x:
    _count(axes.set_xticks, columns, w, gap)
    _count(axes.set_yticks, rows, h, gap)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.tick_params(length=0)
  if bar:
    figure.colorbar(drawn, ax=axes, label=bar, shrink=0.8)
  figure.savefig(path, dpi=150)


def _count(set_ticks: Any, count: int, size: int, gap: int) -> None:
  step = -(-count // 16)
  places = np.arange(0, count, step)
  set_ticks(places * (size + gap) + (size - 1) / 2, places + 1)


def overlay(
  image: Float[np.ndarray, 'H W 3'], values: Float[np.ndarray, 'H W']
) -> Float[np.ndarray, 'H W 3']:
  """Returns an image in [0, 1] with values on it: dark where they are small."""
  from matplotlib import colormaps

  values = values / max(values.max(), 1e-12)
  colours = colormaps[_COLOURS](values)[..., :3]
  grey = image.mean(axis=-1, keepdims=True)
  return (0.35 * grey + 0.65 * colours).astype(np.float32)
