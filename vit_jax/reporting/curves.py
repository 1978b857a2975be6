"""The metrics of a run, as lines to draw."""

from collections.abc import Mapping, Sequence
import os

from vit_jax.evaluation import multilabel
from vit_jax.evaluation import regression
from vit_jax.evaluation import scores
from vit_jax.reporting import plot
from vit_jax.runtime import workdir as workdir_lib
from vit_jax.training import contrastive
from vit_jax.training import distillation
from vit_jax.training import metrics

Row = metrics.Row

PANELS = {  # Metrics drawn together, by the title of their y axis.
  'loss': ('train_loss', scores.LOSS, scores.LOSS + scores.AVERAGED),
  'loss with a teacher': (distillation.LABEL_LOSS, distillation.TEACHER_LOSS),
  'test accuracy': (
    scores.ACCURACY,
    scores.ACCURACY + scores.AVERAGED,
    scores.TO_IMAGE,
    scores.TO_IMAGE + scores.AVERAGED,
  ),
  'mean average precision': (multilabel.MAP, multilabel.MAP + scores.AVERAGED),
  'mean absolute error': (regression.MAE, regression.MAE + scores.AVERAGED),
  'temperature': (contrastive.TEMPERATURE,),
  'learning rate': ('lr',),
  'images/s': ('img_sec_train',),
}


def read(workdir: os.PathLike | str) -> list[Row]:
  """Returns the lines of `metrics.jsonl`; empty if there is no such file."""
  path = workdir_lib.at(workdir).metrics
  if not path.is_file():
    return []
  return metrics.parse(path.read_bytes())


def panels(
  rows: Sequence[Row], titles: Sequence[str] = tuple(PANELS)
) -> dict[str, Mapping[str, plot.Line]]:
  """Returns the arguments of `plot.curves` for the metrics in `rows`."""
  found: dict[str, Mapping[str, plot.Line]] = {}
  for title in titles:
    lines = {}
    for name in PANELS[title]:
      of_name = [row for row in rows if name in row]
      if of_name:
        steps = [row['step'] for row in of_name]
        lines[name] = steps, [row[name] for row in of_name]
    if lines:
      found[title] = lines
  return found
