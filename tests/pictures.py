"""Folders of small pictures whose classes are colours."""

from collections.abc import Sequence
import pathlib

import numpy as np
from runs import tiny_lit


def make_image_folder(root: pathlib.Path) -> pathlib.Path:
  """Writes JPEG files whose colour tells their class."""
  import cv2

  rng = np.random.RandomState(0)
  for split, count in (('train', 12), ('test', 5)):
    for label, name in enumerate(('blue', 'green', 'red')):
      folder = root / split / name
      folder.mkdir(parents=True)
      for i in range(count):
        height, width = rng.randint(20, 60, 2)
        image = rng.randint(0, 80, (height, width, 3), np.uint8)
        image[..., label] += 120
        cv2.imwrite(str(folder / f'{i}.jpg'), image)
  return root


def picture(seed=0, height=40, width=56, channels=3):
  """A picture with smooth areas, noise and a narrow range of red."""
  rng = np.random.default_rng(seed)
  y, x = np.mgrid[:height, :width]
  ramp = np.stack([y * 4, x * 3, y + x], axis=-1)[..., :channels]
  image = np.clip(ramp + rng.integers(0, 60, ramp.shape), 0, 255)
  image[..., 0] = image[..., 0] // 3 + 70
  return image.astype(np.uint8)


def make_table(folder: pathlib.Path, columns: Sequence[str], count: int):
  """Writes images with 0 to 3 bright channels, and a table with their labels.

  Columns are 'labels', the bright channels; 'bright' and 'red', numbers; 'weight'.
  """
  import cv2

  folder.mkdir()
  rng = np.random.default_rng(0)
  lines = [','.join(['image', *columns])]
  for i in range(count):
    has = rng.random(3) < 0.5
    pixels = rng.integers(0, 60, (20, 24, 3)) + 180 * has
    cv2.imwrite(str(folder / f'{i}.png'), pixels[..., ::-1].astype(np.uint8))
    values = {
      'labels': '|'.join(n for n, x in zip('rgb', has, strict=True) if x),
      'bright': has.sum() * 10.0,
      'red': has[0] - 3.5,
      'weight': 1 + i % 3,
    }
    lines.append(','.join([f'{i}.png', *(str(values[c]) for c in columns)]))
  path = folder / 'table.csv'
  path.write_text('\n'.join(lines))
  return path


COLOURS = ('blue', 'green', 'red')


# What the captions and prompts of the tests are made of.
VOCABULARY = '[PAD] [UNK] [CLS] a blue green red picture this is photo of the .'


def write_colour(path: pathlib.Path, name: str, rng: np.random.RandomState):
  """Writes an image that is mostly of one colour."""
  import cv2

  height, width = rng.randint(20, 60, 2)
  image = rng.randint(0, 80, (height, width, 3), np.uint8)
  image[..., COLOURS.index(name)] += 120
  cv2.imwrite(str(path), image)


def make_caption_folder(root: pathlib.Path) -> pathlib.Path:
  """Writes coloured images and captions that tell the colour, two an image.

  Besides, `vocab.txt`, and `vit.npz` with random weights for tests/run_files/
  tiny_lit.py.
  """
  from vit_jax import checkpoint
  from vit_jax import models

  rng = np.random.RandomState(0)
  for split, count in (('train', 12), ('test', 5)):
    (root / split).mkdir(parents=True)
    lines = []
    for name in COLOURS:
      for i in range(count):
        write_colour(root / split / f'{name}{i}.png', name, rng)
        lines.append(f'{name}{i}.png\ta {name} picture\n')
        lines.append(f'{name}{i}.png\tthis is {name}\n')
    (root / split / 'captions.tsv').write_text(''.join(lines))
  (root / 'vocab.txt').write_text(VOCABULARY.replace(' ', '\n') + '\n')
  image = tiny_lit(root).model.image.to_dict()
  model = models.from_config(image, num_classes=5)
  checkpoint.save(models.init_params(model, (16, 16, 3)), root / 'vit.npz')
  return root
