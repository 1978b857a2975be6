"""Tables of the solar cells of `elpv-dataset`, for each kind of label.

pip install elpv-dataset
python -m benchmarks.solar_cells --output=/tmp/cells
vit-jax train --config=finetune_mini:/tmp/cells/numbers.csv --workdir=/tmp/run

2,624 cells of 300 px have the probability of a defect, 0, 1/3, 2/3 or 1, and a type,
mono or poly (doi:10.1016/j.solener.2019.02.067). numbers.csv has the probability,
classes.csv the same as four classes, whose order is in classes.txt, several.csv the type
and whether the cell is defective, folder/ links to the images of each class.
`benchmarks.check_scores` compares the scores of a run with scikit-learn's.
"""

from collections.abc import Sequence
import csv
import importlib.util
import pathlib

from absl import app
from absl import flags

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
  """Writes the three tables and the folder."""
  output.mkdir(parents=True, exist_ok=True)
  numbers, classes, several = [], [], []
  for path, probability, kind in cells():
    numbers.append((path, f'{probability:.4f}'))
    classes.append((path, _CLASSES[round(3 * probability)]))
    link = output / 'folder' / classes[-1][1] / path.name
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
      link.symlink_to(path)
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


def main(argv: Sequence[str]) -> None:
  del argv
  write(pathlib.Path(flags.FLAGS.output))


if __name__ == '__main__':
  flags.DEFINE_string('output', None, 'Folder for the tables.', required=True)
  app.run(main)
