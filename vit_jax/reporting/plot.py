"""Figures of numbers, by matplotlib."""

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import io
from typing import Any
import warnings

from jaxtyping import Float
import numpy as np

from vit_jax.runtime import storage

Line = tuple[Sequence[int | float], Sequence[int | float]]  # (xs, ys)

_LONGEST = 28  # Most characters of a class name that are shown.
_COLOURS = 'inferno'  # Perceptually uniform, also for the colour-blind.


def _figure(width: int | float, height: int | float) -> Any:
  # Imported late: it takes a second. `Figure` needs no window and works on any thread.
  from matplotlib.figure import Figure

  return Figure(figsize=(width, height), layout='constrained')


def save(figure: Any, path: storage.Path | str) -> None:
  """Writes a figure as a PNG, whole or not at all."""
  buffer = io.BytesIO()
  with _names_are_text(figure):
    figure.savefig(buffer, dpi=150)
  storage.write_bytes(buffer.getvalue(), storage.as_path(path))


def svg(figure: Any) -> str:
  """Returns a figure for a page, drawn in the colour of the page's text."""
  import matplotlib as mpl

  buffer = io.StringIO()
  # Text stays text, and the same figure gives the same bytes.
  with (
    _names_are_text(figure),
    mpl.rc_context({'svg.fonttype': 'none', 'svg.hashsalt': 'vit_jax'}),
  ):
    figure.savefig(
      buffer, format='svg', transparent=True, metadata={'Date': None}
    )
  text = buffer.getvalue()
  text = text[text.index('<svg') :]
  # Matplotlib omits black in text, and writes it as #000000 elsewhere.
  text = text.replace('#000000', 'currentColor')
  return text.replace('<svg ', '<svg fill="currentColor" ', 1)


@contextlib.contextmanager
def _names_are_text(figure: Any) -> Iterator[None]:
  """Draws names of classes and files literally, although they contain `$`."""
  import matplotlib as mpl
  from matplotlib import text

  for drawn in figure.findobj(text.Text):
    drawn.set_parse_math(False)
  with warnings.catch_warnings(), mpl.rc_context({'text.parse_math': False}):
    # Letters that the font lacks are drawn as boxes.
    warnings.filterwarnings('ignore', 'Glyph .* missing from font')
    yield


def _label(name: str) -> str:
  """Returns a name in one line, shortened to leave room for the picture."""
  text = ''.join(
    c if c.isprintable() or c.isspace() else '\ufffd' for c in name
  )
  line = ' '.join(text.split())
  return line if len(line) <= _LONGEST else f'{line[: _LONGEST - 1]}…'


def curves(
  panels: Mapping[str, Mapping[str, Line]],
  *,
  x: str,
  log_x: bool = False,
  size: tuple[int | float, int | float] = (5, 3.5),
) -> Any:
  """Returns a figure of lines by name, in panels by the title of their y axis.

  With `log_x`, the x axis is logarithmic and has a tick at each point. `size` is
  the (width, height) of a panel in inches.
  """
  figure = _figure(size[0] * len(panels), size[1])
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
      axes.legend(frameon=False)
    axes.set_xlabel(x)
    axes.set_ylabel(title)
    axes.grid(alpha=0.3)
  return figure


def points(values: Float[np.ndarray, 'n m'], *, x: str, y: str) -> Any:
  """Returns a figure with row i of the values above i on the x axis."""
  figure = _figure(6, 4)
  axes = figure.subplots()
  places = np.arange(1, len(values) + 1)[:, None]
  axes.scatter(np.broadcast_to(places, values.shape), values, s=14, alpha=0.7)
  axes.set_xlabel(x)
  axes.set_ylabel(y)
  axes.set_ylim(bottom=0)
  axes.xaxis.get_major_locator().set_params(integer=True)
  axes.grid(alpha=0.3)
  return figure


def scatter(
  true: Float[np.ndarray, ' n'],
  predicted: Float[np.ndarray, ' n'],
  *,
  title: str,
  size: tuple[int | float, int | float] = (5, 3.5),
) -> Any:
  """Returns a figure of predicted numbers above true ones, and where they agree."""
  figure = _figure(*size)
  axes = figure.subplots()
  axes.scatter(true, predicted, s=14, alpha=0.5)
  ends = [min(true.min(), predicted.min()), max(true.max(), predicted.max())]
  axes.plot(ends, ends, color='gray', linewidth=1)
  axes.set_xlabel(_label(title))
  axes.set_ylabel('predicted')
  axes.grid(alpha=0.3)
  return figure


def pictures(images: Mapping[str, Float[np.ndarray, 'H W 3']]) -> Any:
  """Returns a figure of images in rows, each below its name."""
  columns = int(np.ceil(np.sqrt(len(images))))
  rows = -(-len(images) // columns)
  height, width = next(iter(images.values())).shape[:2]
  figure = _figure(3 * columns, 3 * rows * height / width + 0.4 * rows)
  all_axes = figure.subplots(rows, columns, squeeze=False).ravel()
  for axes in all_axes:
    axes.axis('off')
  for axes, (name, image) in zip(all_axes, images.items(), strict=False):
    axes.imshow(np.clip(image, 0, 1))
    axes.set_title(_label(name), fontsize=9)
  return figure


def mosaic(
  tiles: Float[np.ndarray, 'rows columns h w *C'],
  *,
  x: str = '',
  y: str = '',
  title: str = '',
  bar: str = '',
) -> Any:
  """Returns a figure of many small images in a grid.

  Tiles are values to colour, or [..., 3] in [0, 1]. `x` and `y` are the titles of
  columns and rows, which are numbered from 1; `bar` labels the colour bar.
  """
  rows, columns, h, w = tiles.shape[:4]
  gap = max(1, h // 16)
  around = ((0, 0), (0, 0), (0, gap), (0, gap)) + ((0, 0),) * (tiles.ndim - 4)
  empty = 1.0 if tiles.ndim > 4 else np.nan
  padded = np.pad(tiles, around, constant_values=empty).swapaxes(1, 2)
  shape = rows * (h + gap), columns * (w + gap), *tiles.shape[4:]
  padded = padded.reshape(shape)[:-gap, :-gap]
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
  return figure


def matrix(
  shares: Float[np.ndarray, 'n n'], names: Sequence[str], *, x: str, y: str
) -> Any:
  """Returns a figure of shares in [0, 1], with names if there is room."""
  from matplotlib import ticker

  size = min(9.0, 3 + 0.28 * len(names))
  figure = _figure(size, size)
  axes = figure.subplots()
  drawn = axes.imshow(shares, cmap=_COLOURS, vmin=0, vmax=1)
  axes.set_xlabel(x)
  axes.set_ylabel(y)
  if len(names) <= 40:
    places = range(len(names))
    labels = [_label(name) for name in names]
    axes.set_xticks(places, labels, rotation=90)
    axes.set_yticks(places, labels)
  if len(names) <= 12:
    for (i, j), value in np.ndenumerate(shares):
      colour = 'white' if value < 0.6 else '#111111'
      text = f'{100 * value:.0f}'
      axes.text(j, i, text, ha='center', va='center', color=colour, fontsize=8)
  percent = ticker.PercentFormatter(1)
  figure.colorbar(drawn, ax=axes, shrink=0.6, format=percent)
  return figure


def _count(set_ticks: Any, count: int, size: int, gap: int) -> None:
  step = -(-count // 16)
  places = np.arange(0, count, step)
  set_ticks(places * (size + gap) + (size - 1) / 2, places + 1)


def overlay(
  image: Float[np.ndarray, 'H W 3'], values: Float[np.ndarray, 'H W']
) -> Float[np.ndarray, 'H W 3']:
  """Returns an image in [0, 1] with values over it, dark where they are small."""
  from matplotlib import colormaps

  values = values / max(values.max(), 1e-12)
  colours = colormaps[_COLOURS](values)[..., :3]
  grey = image.mean(axis=-1, keepdims=True)
  return (0.35 * grey + 0.65 * colours).astype(np.float32)
