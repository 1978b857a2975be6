"""The numbers of a run, as lines to be drawn."""

from collections.abc import Mapping, Sequence
import os

from vit_jax.reporting import plot
from vit_jax.runtime import workdir as workdir_lib
from vit_jax.training import metrics

Row = metrics.Row

PANELS = {  # What is drawn together, by what is on the y axis.
  'loss': ('train_loss', 'loss_test', 'loss_test_ema'),
  'test accuracy': ('accuracy_test', 'accuracy_test_ema'),
  'learning rate': ('lr',),
  'images/s': ('img_sec_train',),
}


def read(workdir: os.PathLike | str) -> list[Row]:
  """Returns the lines of `metrics.jsonl`; none if there is no such file."""
  path = workdir_lib.at(workdir).metrics
  if not path.is_file():
    return []
  return metrics.parse(path.read_bytes())


def panels(
  rows: Sequence[Row], titles: Sequence[str] = tuple(PANELS)
) -> dict[str, Mapping[str, plot.Line]]:
  """Returns what `plot.curves` takes, of those that there are numbers for."""
  found = {}
  for title in titles:
    lines = {}
    for name in PANELS[title]:
      points = [(row['step'], row[name]) for row in rows if name in row]
      if points:
        lines[name] = tuple(zip(*points, strict=True))
    if lines:
      found[title] = lines
  return found
