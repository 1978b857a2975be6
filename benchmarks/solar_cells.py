"""Tables of the solar cells of `elpv-dataset`, for each kind of label.

pip install elpv-dataset
python -m benchmarks.solar_cells --output=/tmp/cells
vit-jax train --config=finetune_mini:/tmp/cells/numbers.csv --workdir=/tmp/run
vit-jax evaluate --model=/tmp/run --dataset=/tmp/cells/numbers.csv \
  --predictions=/tmp/cells/rows.jsonl
python -m benchmarks.solar_cells --check=/tmp/cells/rows.jsonl

2,624 cells of 300 px have the probability of a defect, 0, 1/3, 2/3 or 1, and a type,
mono or poly (doi:10.1016/j.solener.2019.02.067). numbers.csv has the probability,
classes.csv the same as four classes, whose order is in classes.txt, several.csv the type and whether the cell
is defective. --check computes the metrics of predictions by scikit-learn alone.
"""

from collections.abc import Sequence
import csv
import importlib.util
import json
import pathlib

from absl import app
from absl import flags
import numpy as np
from scipy import stats
from sklearn import metrics

_CLASSES = {0: 'fine', 1: 'likely fine', 2: 'likely defective', 3: 'defective'}


def cells() -> list[tuple[pathlib.Path, float, str]]:
  """Returns path, probability of a defect and type of each cell."""
  found = importlib.util.find_spec('elpv_dataset')
  if found is None or found.origin is None:
    raise SystemExit('pip install elpv-dataset')
  folder = pathlib.Path(found.origin).parent / 'data'
  rows = [x.split() for x in (folder / 'labels.csv').read_text().splitlines()]
  return [(folder / name, float(p), kind) for name, p, kind in rows]


def write(output: pathlib.Path) -> None:
  """Writes the three tables."""
  output.mkdir(parents=True, exist_ok=True)
  numbers, classes, several = [], [], []
  for path, probability, kind in cells():
    numbers.append((path, f'{probability:.4f}'))
    classes.append((path, _CLASSES[round(3 * probability)]))
    marks = [kind, *(['defective'] if probability > 0.5 else [])]
    several.append((path, '|'.join(marks)))
  for name, column, rows in (
    ('numbers', 'target', numbers),
    ('classes', 'label', classes),
    ('several', 'labels', several),
  ):
    with open(output / f'{name}.csv', 'w', newline='') as file:
      writer = csv.writer(file)
      writer.writerow(('image', column))
      writer.writerows(rows)
    print(output / f'{name}.csv', len(rows))
  (output / 'classes.txt').write_text('\n'.join(_CLASSES.values()) + '\n')


def check(path: str) -> dict[str, float]:
  """Returns the metrics of `vit-jax evaluate --predictions`, by scikit-learn."""
  lines = pathlib.Path(path).read_text().splitlines()
  rows = [row for row in map(json.loads, lines) if not row['skipped']]
  label = rows[0]['label']
  if isinstance(label, dict):
    want, have = (
      np.array([list(row[key].values()) for row in rows])
      for key in ('label', 'predicted')
    )
    return {
      'mae_test': metrics.mean_absolute_error(want, have),
      'rmse_test': metrics.root_mean_squared_error(want, have),
      'r2_test': metrics.r2_score(want, have),
      'spearman_test': stats.spearmanr(want, have).statistic,
    }
  names = list(rows[0]['probabilities'])
  p = np.array([list(row['probabilities'].values()) for row in rows])
  if isinstance(label, list):
    want, have = (
      np.array([[name in row[key] for name in names] for row in rows])
      for key in ('label', 'predicted')
    )
    return {
      'map_test': metrics.average_precision_score(want, p),
      'f1_test': metrics.f1_score(want, have, average='macro'),
    }
  want, have = ([row[key] for row in rows] for key in ('label', 'predicted'))
  places = [[names.index(x) for x in y] for y in (want, have)]
  return {
    'accuracy_test': metrics.accuracy_score(want, have),
    'balanced_accuracy_test': metrics.balanced_accuracy_score(want, have),
    'f1_test': metrics.f1_score(want, have, average='macro'),
    'kappa_test': metrics.cohen_kappa_score(*places, weights='quadratic'),
  }


def main(argv: Sequence[str]) -> None:
  del argv
  if flags.FLAGS.output:
    write(pathlib.Path(flags.FLAGS.output))
  if flags.FLAGS.check:
    print(json.dumps(check(flags.FLAGS.check), indent=2))


if __name__ == '__main__':
  flags.DEFINE_string('output', None, 'Folder for the tables.')
  flags.DEFINE_string('check', None, 'Predictions (.jsonl) to score.')
  app.run(main)
