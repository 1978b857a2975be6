"""Makes pictures of one to three images each, labelled with all their classes.

python -m benchmarks.composites --dataset=/path/to/cifar10 --output=/tmp/composites
vit-jax train --config=finetune_mini:/tmp/composites/table.csv --workdir=/tmp/run \
  --config.pp.crop_area=1.0,1.0 --config.total_epochs=3 \
  --config.pp.train='train[:90%]' --config.pp.holdout='train[90%:]'

One to three quarters of a picture are images, the others are grey. Training pictures
have training images, test pictures test images. The same command makes the same files.
`benchmarks.check_scores` compares the scores of a run with scikit-learn's.
"""

from collections.abc import Sequence
import csv
import pathlib

from absl import app
from absl import flags
import cv2
import numpy as np

from vit_jax.data import decoding
from vit_jax.data import sources

_SIDE = 32  # Side of a quarter, pixels.
_GREY = 128


def compose(
  source: sources.LabelledSource, rng: np.random.Generator
) -> tuple[np.ndarray, list[str]]:
  """Returns a picture of random images, and their classes, each once."""
  picture = np.full((4, _SIDE, _SIDE, 3), _GREY, np.uint8)
  classes = set()
  for quarter in rng.choice(4, rng.integers(1, 4), replace=False):
    example = source[int(rng.integers(len(source)))]
    pixels = decoding.as_pixels(example['image'])
    small = cv2.resize(pixels, (_SIDE, _SIDE))
    picture[quarter] = small.reshape(_SIDE, _SIDE, -1)  # Grey images too.
    classes.add(source.class_names[example['label']])
  rows = picture.reshape(2, 2, _SIDE, _SIDE, 3).swapaxes(1, 2)
  return rows.reshape(2 * _SIDE, 2 * _SIDE, 3), sorted(classes)


def write(dataset: str, output: pathlib.Path, sizes: dict[str, int]) -> None:
  """Writes the pictures of each split and `table.csv`."""
  rng = np.random.default_rng(0)
  output.mkdir(parents=True, exist_ok=True)
  with open(output / 'table.csv', 'w', newline='') as file:
    table = csv.writer(file)
    table.writerow(('image', 'labels', 'split'))
    for split, count in sizes.items():
      source = sources.get_source(dataset, split)
      for i in range(count):
        picture, classes = compose(source, rng)
        name = f'{split}_{i:05}.png'
        cv2.imwrite(str(output / name), picture[..., ::-1])
        table.writerow((name, '|'.join(classes), split))
  print(output / 'table.csv', sum(sizes.values()))


def main(argv: Sequence[str]) -> None:
  del argv
  options = flags.FLAGS
  sizes = {'train': options.train, 'test': options.test}
  write(options.dataset, pathlib.Path(options.output), sizes)


if __name__ == '__main__':
  flags.DEFINE_string('dataset', None, 'Folder or name.', required=True)
  flags.DEFINE_string('output', None, 'Folder to write.', required=True)
  flags.DEFINE_integer('train', 2500, 'Training pictures.')
  flags.DEFINE_integer('test', 1000, 'Test pictures.')
  app.run(main)
