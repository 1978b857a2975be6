"""One picture with many images: a batch as training sees it, or some of each class."""

import math
import pathlib

from absl import logging
import cv2
import jax
from jaxtyping import ArrayLike, Float, UInt8
import ml_collections
import numpy as np

from vit_jax.configs import labels as labels_lib
from vit_jax.configs import resolved
from vit_jax.data import batching
from vit_jax.data import decoding
from vit_jax.data import label_texts
from vit_jax.data import pipeline
from vit_jax.data import sources
from vit_jax.data.augmentation import transforms
from vit_jax.reporting import colours
from vit_jax.runtime import errors
from vit_jax.runtime import storage
from vit_jax.training import resolve

Sheet = UInt8[np.ndarray, 'rows columns 3']
Captions = list[list[str]]

_MIN_SIDE = 128  # Smaller images are enlarged.
MOST_IMAGES = 64  # On the sheet of a data set.
# Pixels: height of a line of text, space between images.
_LINE, _MARGIN = 16, 4
_ONE_HOST = (0, 1)
_FONT, _FONT_SCALE = cv2.FONT_HERSHEY_SIMPLEX, 0.42


def load_batch(
  config: ml_collections.ConfigDict, num: int, *, test: bool
) -> tuple[Float[np.ndarray, 'B H W C'], Captions]:
  """Returns images in [0, 1] and the lines of text for each.

  With `test`, these are test images, as evaluation sees them. Weights are read only
  where they decide the size of the images.

  Raises:
    errors.UserError: if a setting or a file is wrong, or there are no labels.
  """
  if config.trainer == 'contrastive':
    raise errors.UserError(
      "config.trainer is 'contrastive': its images have captions. Only images with"
      ' labels can be shown.'
    )
  # No model is needed: normalisation is undone below.
  none: resolve.Pretrained = (None, {'model': {}})
  has_size = resolved.complete(config).pp.crop is not None
  get_pretrained = (lambda _: none) if has_size else resolve.read_pretrained
  run = resolve.resolve(config, get_pretrained=get_pretrained, measure=False)
  config, data = run.config, batching.of_config(run.config, run.splits)
  if test:
    batches = pipeline.eval_batches(
      data.test,
      data.eval_transform,
      batch_size=num,
      shard=_ONE_HOST,
      **data.loader,
    )
    batch = next(batches)
    batch = {name: x[batch['mask']] for name, x in batch.items()}
    images = jax.jit(data.preprocess.eval)(batch['image'])
    captions = _captions(batch['label'], data)
  else:
    batches = pipeline.train_batches(
      data.train,
      data.train_transform,
      batch_size=num,
      seed=config.seed,
      shard=_ONE_HOST,
      **data.loader,
    )
    images, captions = _augment(next(batches), data, config.seed)
  mean, std = np.float32(config.pp.mean), np.float32(config.pp.std)
  pixels = np.asarray(images) * std + mean
  if data.train.is_stack:
    logging.info('%s', colours.note(pixels.shape[-1]))
    pixels = np.stack([colours.of_image(x) for x in pixels])
  return pixels, captions


def _captions(labels: ArrayLike, data: batching.Data) -> Captions:
  source = data.train.source
  return [label_texts.lines(label, source) for label in np.asarray(labels)]


def write(sheet: Sheet, path: pathlib.Path, flag: str) -> None:
  """Writes a PNG file; raises `errors.UserError`, with the flag, if it cannot."""
  _, data = cv2.imencode('.png', sheet[..., ::-1])
  with errors.writing(f'{flag}={path}'):
    path.parent.mkdir(parents=True, exist_ok=True)
    storage.write_bytes(data.tobytes(), path)


def of_classes(source: sources.LabelledSource) -> Sheet:
  """Draws the first images of each class, squeezed to squares.

  Images that are labelled with numbers are drawn from the lowest to the highest
  first one. Leaves out files that cannot be decoded; raises `errors.UserError` if
  that is all.
  """
  images, captions = [], []
  for i in _chosen(source):
    try:
      example = source[i]
      image = decoding.as_pixels(example['image'])
    except (OSError, ValueError):  # Counted by `survey`.
      continue
    small = transforms.resize(image, (_MIN_SIDE, _MIN_SIDE)) / 255
    images.append(colours.of_image(small))
    captions.append(label_texts.lines(example['label'], source))
  if not images:
    raise errors.UserError('None of the images of a sheet can be decoded.')
  return draw(np.stack(images), captions)


def _chosen(source: sources.LabelledSource) -> list[int]:
  """Returns the images of a sheet: some of each class, or over all numbers."""
  labels, task = source.labels(), sources.task_of(source)
  if task == labels_lib.REGRESSION:
    order = np.argsort(labels[:, 0], kind='stable')
    places = np.linspace(0, len(order) - 1, min(MOST_IMAGES, len(order)))
    return order[places.astype(int)].tolist()
  classes = range(min(MOST_IMAGES, len(source.class_names)))
  if task == labels_lib.MULTICLASS:
    groups = [np.flatnonzero(labels == label) for label in classes]
  else:
    groups = [np.flatnonzero(labels[:, label]) for label in classes]
  each = max(1, MOST_IMAGES // len(groups))
  return [i for group in groups for i in group[:each].tolist()]


def _augment(
  batch: pipeline.Batch, data: batching.Data, seed: int
) -> tuple[ArrayLike, Captions]:
  """Returns augmented images, and for each its classes with their shares."""
  augment_key, mix_key = jax.random.split(jax.random.key(seed))
  images = jax.jit(data.preprocess.train)(augment_key, batch['image'])
  if not data.mix:
    return images, _captions(batch['label'], data)
  images, targets = jax.jit(data.mix)(mix_key, images, batch['label'])
  captions = []
  for shares in np.asarray(targets):
    classes = np.argsort(-shares)[: np.count_nonzero(shares)]
    captions.append([f'{shares[i]:.2f} {data.class_names[i]}' for i in classes])
  return images, captions


def draw(images: Float[np.ndarray, 'B H W C'], captions: Captions) -> Sheet:
  """Draws images in [0, 1] in rows, each above the lines of its caption."""
  if images.shape[-1] not in (1, 3):
    raise errors.UserError(
      f'Images with {images.shape[-1]} channels cannot be shown, only 1 or 3.'
    )
  pixels = np.round(np.clip(images, 0, 1) * 255).astype(np.uint8)
  factor = math.ceil(_MIN_SIDE / max(pixels.shape[1:3]))
  pixels = pixels.repeat(factor, 1).repeat(factor, 2)
  height, width = pixels.shape[1:3]
  lines_height = _LINE * max(map(len, captions))
  cell = height + lines_height + 2 * _MARGIN, width + _MARGIN
  columns = math.ceil(math.sqrt(len(pixels)))
  rows = math.ceil(len(pixels) / columns)
  sheet = np.full((rows * cell[0], columns * cell[1], 3), 255, np.uint8)
  for i, (image, lines) in enumerate(zip(pixels, captions, strict=True)):
    top, left = i // columns * cell[0], i % columns * cell[1]
    sheet[top : top + height, left : left + width] = image
    for n, line in enumerate(lines, 1):
      place = (left + 1, top + height + n * _LINE - _MARGIN)
      cv2.putText(
        sheet, _fit(line, width), place, _FONT, _FONT_SCALE, color=(0, 0, 0)
      )
  return sheet


def _fit(text: str, width: int) -> str:
  """Returns a text, shortened to `width` pixels."""
  text = text.encode(
    'ascii', 'replace'
  ).decode()  # The font has no other letters.
  short = text
  while short and _text_width(short) > width:
    text = text[:-1]
    short = text + '..'
  return short


def _text_width(text: str) -> int:
  return cv2.getTextSize(text, _FONT, _FONT_SCALE, thickness=1)[0][0]
