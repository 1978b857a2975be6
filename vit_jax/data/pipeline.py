"""Batches for training and evaluation, by Grain.

The order of the images depends on the seed alone and the step is the position:
any number of threads, workers or hosts gives the same batches, and resuming needs
no saved state. Memory: `prefetch` batches, uint8 pixels in training and uint16 in
evaluation, or float32 for images of more than 8 bits, for this process and for each
worker.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
import dataclasses
from typing import Any

from absl import logging
import grain
import numpy as np

from vit_jax.data import decoding
from vit_jax.data import pixel_values
from vit_jax.data import preprocessing
from vit_jax.data import sources
from vit_jax.data import workers
from vit_jax.data.augmentation import transforms
from vit_jax.runtime import errors

Batch = workers.Batch

# Images of one size up to this are sent raw and transformed on the device.
_MAX_RAW_SIDE = 64


@dataclasses.dataclass
class Decoded:
  """A source with its images decoded.

  At a bad file, `on_bad_image='raise'` raises an error that names it. 'skip' takes
  the next good image instead in training, masks it in evaluation, and adds its name
  and the reason to `skipped` of this process.
  """

  source: sources.Source
  exif: bool = False  # Whether to turn images upright by their EXIF tag.
  on_bad_image: str = 'raise'
  channels: int | None = None  # To decode to; None for those of the source.
  pad_to: int = 0  # Length: elements past the end of the source are masked.
  train: bool = False
  on_host: bool = False  # Whether small images too are transformed on the host.
  # Whether images become float32, in [0, 255] or beyond, see `stacks`: it is part of
  # the compiled step, so all hosts must agree. None: as each image is.
  is_float: bool | None = False
  # What a model expects, to refuse values of another unit.
  expected: preprocessing.Preprocessing | None = None
  weights: np.ndarray | None = None  # In the training loss, see `row_weights`.
  skipped: dict[str, str] = dataclasses.field(default_factory=dict)

  def __post_init__(self) -> None:
    if self.on_bad_image not in ('raise', 'skip'):
      raise errors.UserError(
        f"on_bad_image is {self.on_bad_image!r}, but must be 'raise' or 'skip'."
      )

  def __setstate__(self, state: dict[str, Any]) -> None:
    """Unpickles; makes a worker end with the process that started it."""
    self.__dict__.update(state)
    workers.end_with_parent()

  @property
  def num_channels(self) -> int:
    """Number of channels of the decoded images."""
    shape = self.source.image_shape
    return self.channels or (shape[-1] if shape else 3)

  @property
  def is_stack(self) -> bool:
    """Whether images are not like pictures in depth or channels."""
    return bool(self.is_float) or self.num_channels not in (1, 3)

  @property
  def is_raw(self) -> bool:
    """Whether images are sent as they are, to be transformed on the device."""
    shape = self.source.image_shape
    is_small = shape is not None and max(shape[:2]) <= _MAX_RAW_SIDE
    return is_small and not self.on_host

  def __len__(self) -> int:
    return max(len(self.source), self.pad_to)

  def __getitem__(self, index: int) -> dict[str, Any]:
    if index >= len(self.source):
      return self._masked()
    attempts = len(self.source) if self.train else 1
    for i in range(attempts):
      example = self._load((index + i) % len(self.source))
      if example is not None:
        return example
    if self.train:
      raise errors.UserError(f'None of {attempts} images can be decoded.')
    return self._masked()

  def _pixels(self, image: bytes | np.ndarray) -> decoding.Image:
    """Decodes an image; raises ValueError if it is not like the others."""
    pixels = decoding.as_pixels(image, self.num_channels, self.exif)
    if self.expected:
      pixel_values.check_scale(pixels, self.expected)
    if self.is_float:
      return pixels.astype(np.float32)
    if self.is_float is not None and pixels.dtype != np.uint8:
      raise ValueError('it has more than 8 bits, unlike the first image')
    return pixels

  def _masked(self) -> dict[str, Any]:
    height, width = (self.source.image_shape or (1, 1))[:2]
    dtype = np.float32 if self.is_float else np.uint8
    image = np.zeros((height, width, self.num_channels), dtype)
    return {'image': image, 'mask': np.bool_(False), **self._target(None)}

  def _target(self, example: dict[str, Any] | None) -> dict[str, Any]:
    """Returns what the model must predict; any value for a masked example."""
    shape = getattr(self.source, 'label_shape', ())
    label = example['label'] if example else np.zeros(shape)
    return {'label': np.asarray(label, np.float32 if shape else np.int32)}

  def _load(self, index: int) -> dict[str, Any] | None:
    """Returns an example, or None for a bad file to skip."""
    name = f'image {index}'
    try:
      example = self.source[index]
      name = example['name']
      image = self._pixels(example['image'])
    except (OSError, ValueError) as e:
      name = getattr(e, 'filename', None) or name
      if self.on_bad_image == 'raise':
        raise errors.UserError(_explain(name, e)) from e
      if name not in self.skipped:
        self.skipped[name] = str(getattr(e, 'strerror', None) or e)
        logging.warning('Skipped %s: %s', name, self.skipped[name])
      return None
    target = self._target(example)
    if self.weights is not None:
      target['weight'] = self.weights[index]
    return {'image': image, 'mask': np.bool_(True), **target}


def _explain(name: str, error: Exception) -> str:
  """Returns why an image cannot be used, and what to do."""
  skip = 'or leave such images out with on_bad_image=skip'
  if isinstance(error, errors.UserError):  # It says what to do.
    return str(error)
  if isinstance(error, FileNotFoundError):
    return f'There is no image {name}: put it back, {skip}.'
  if isinstance(error, OSError):
    return f'{name} cannot be read: {error.strerror}. Allow it, {skip}.'
  reason = str(error).rstrip('.')
  return f'{name} cannot be decoded: {reason}. Repair or delete it, {skip}.'


def train_batches(
  data: Decoded,
  transform: grain.transforms.RandomMap,
  *,
  batch_size: int,
  seed: int,
  first_step: int = 0,
  shard: tuple[int, int] = (0, 1),
  num_threads: int = 4,
  num_workers: int = 0,
  prefetch: int = 4,
) -> Iterator[Batch]:
  """Yields shuffled batches without end.

  Args:
    data: the source.
    transform: applied to each example on the host, unless images are sent raw.
    batch_size: batch size over all hosts.
    seed: seeds order and augmentation.
    first_step: number of batches to skip, at no cost.
    shard: (index, count): the part of each batch that this host reads.
    num_threads: decoding threads in each worker.
    num_workers: worker processes; 0 decodes in this process.
    prefetch: number of batches to prepare ahead.

  Yields:
    {'image': uint8 or float32 [batch_size / count, H, W, C], 'label': int32}, or the other
    targets of `data` and `transform`; 'weight' float32 if `data` has weights.
  """
  index, count = shard
  dataset = grain.MapDataset.source(data).seed(seed % 2**32)
  dataset = dataset.shuffle().repeat()
  if not data.is_raw:
    dataset = dataset.random_map(transform)
  dataset = dataset.batch(
    batch_size // count, drop_remainder=True, batch_fn=_stack
  )
  dataset = dataset[index::count][first_step:]
  for batch in workers.batches(dataset, num_threads, num_workers, prefetch):
    del batch['mask']  # All true.
    yield batch


def eval_batches(
  data: Decoded,
  transform: grain.transforms.Map,
  *,
  batch_size: int,
  shard: tuple[int, int] = (0, 1),
  num_threads: int = 4,
  num_workers: int = 0,
  prefetch: int = 4,
) -> Iterator[Batch]:
  """Yields every example once, in order; the last batch is padded.

  Arguments are those of `train_batches`. Every host gets the same number of
  batches.

  Yields:
    {'image': uint8, uint16 or float32 [B, H, W, C], 'label': int32 [B], 'mask': bool [B]}.
  """
  check_batch_size(batch_size)
  index, count = shard
  num_batches = -(-len(data.source) // batch_size)
  data = dataclasses.replace(data, pad_to=num_batches * batch_size)
  dataset = grain.MapDataset.source(data)
  if not data.is_raw:
    dataset = dataset.map(transform)
  dataset = dataset.batch(batch_size // count, batch_fn=_stack)
  yield from workers.batches(
    dataset[index::count], num_threads, num_workers, prefetch
  )


def check_batch_size(batch_size: int) -> None:
  """Raises `errors.UserError` unless a batch has at least one image."""
  if batch_size < 1:
    raise errors.UserError(
      f'batch_size is {batch_size}, but must be at least 1.'
    )


def decoded_rows(
  batches: Iterable[dict[str, Any]], function: Callable[[Any], Any]
) -> Iterator[tuple[int, np.ndarray]]:
  """Yields the index and the output of each decoded image of `eval_batches`.

  `function` maps the images of a batch to outputs [B, ...].
  """
  place = 0
  for batch in batches:
    rows = np.asarray(function(batch['image']))
    for row, is_decoded in zip(rows, np.asarray(batch['mask']), strict=True):
      if is_decoded:
        yield place, row
      place += 1


def _stack(examples: Sequence[dict[str, Any]]) -> Batch:
  return {
    name: transforms.stack([example[name] for example in examples])
    for name in examples[0]
  }
