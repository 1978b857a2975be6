"""Both splits of a data set, opened once, and their batches on the devices."""

from collections.abc import Generator, Iterator
import dataclasses
import itertools

from absl import logging
import grain
import jax
import ml_collections

from vit_jax.configs import labels as labels_lib
from vit_jax.configs import resolved
from vit_jax.data import class_counts
from vit_jax.data import datasets
from vit_jax.data import pipeline
from vit_jax.data import preprocessing as preprocessing_lib
from vit_jax.data import sources
from vit_jax.data import subsets
from vit_jax.data.augmentation import augment
from vit_jax.data.augmentation import mixing
from vit_jax.data.augmentation import transforms
from vit_jax.data.rows import row_weights
from vit_jax.runtime import errors
from vit_jax.runtime import preemption
from vit_jax.runtime import sharding


@dataclasses.dataclass(frozen=True)
class Data:
  """Both splits, transforms of their images on the host, of batches on the device.

  `preprocess` and then `mix` transform a batch on the device. `loader` has
  `num_threads`, `num_workers` and `prefetch` for `pipeline`.
  """

  train: pipeline.Decoded
  test: pipeline.Decoded
  holdout: pipeline.Decoded | None
  train_transform: grain.transforms.RandomMap
  eval_transform: grain.transforms.Map
  preprocessing: preprocessing_lib.Preprocessing
  preprocess: augment.Preprocess
  mix: mixing.Mix | None
  loader: dict[str, int]

  @property
  def class_names(self) -> list[str]:
    """Names of the classes, in the order of the logits."""
    return list(self.test.source.class_names)

  @property
  def units(self) -> list[str]:
    """Units of the numbers that images are labelled with; empty for none."""
    return list(getattr(self.test.source, 'units', ()))

  @property
  def image_shape(self) -> tuple[int, int, int]:
    """[H, W, C] of the model's input."""
    return (*self.preprocess.size, self.preprocessing.channels)


def of_config(
  config: ml_collections.ConfigDict, splits: datasets.Splits | None = None
) -> Data:
  """Returns the batches of a config; opens the data set unless given `splits`."""
  splits = splits or datasets.open_splits(config)
  channels = splits.test.num_channels
  _check_channels(config, splits)
  classes = _check_classes(config, splits)
  pp = config.pp
  preprocessing = preprocessing_lib.of_config(config, channels)
  size = resolved.image_size(config)
  crop = {
    'size': size,
    'area': tuple(pp.crop_area),
    'ratio': tuple(pp.crop_ratio),
    'resize': pp.resize,
    'pad': pp.pad,
    'pad_mode': pp.pad_mode,
    'flip': pp.flip,
  }
  resize_test = preprocessing.resize_test
  return Data(
    train=splits.train,
    test=splits.test,
    holdout=splits.holdout,
    train_transform=transforms.TrainImage(
      **crop, randaugment=tuple(pp.randaugment)
    ),
    eval_transform=transforms.EvalImage(
      size, resize_test, preprocessing.interpolation
    ),
    preprocessing=preprocessing,
    preprocess=augment.Preprocess(
      **crop,
      resize_test=resize_test,
      interpolation=preprocessing.interpolation,
      color_jitter=tuple(pp.color_jitter),
      random_erasing=pp.random_erasing,
      on_device=splits.test.is_raw,
      mean=preprocessing.mean,
      std=preprocessing.std,
    ),
    mix=mixing.Mix(classes, pp.mixup, pp.cutmix)
    if pp.mixup or pp.cutmix
    else None,
    loader={
      'num_threads': config.num_threads,
      'num_workers': config.num_workers,
      'prefetch': config.prefetch,
    },
  )


def _check_classes(
  config: ml_collections.ConfigDict, splits: datasets.Splits
) -> int:
  """Logs what was opened; returns the number of classes, 0 for captions."""
  train, test, pp = splits.train.source, splits.test.source, config.pp
  chosen = [f'{k}={pp[k]}' for k in ('shots', 'balance_classes') if pp[k]]
  if isinstance(train, subsets.Subset):
    chosen.append(f'out of {train.whole}')
  classes, task = len(test.class_names), sources.task_of(test)
  what = 'classes' if task != labels_lib.REGRESSION else 'numbers each'
  logging.info(
    '%s: %d images to train on (%s), %d to test (%s)%s.',
    config.dataset,
    len(train),
    ', '.join([pp.train, *chosen]),
    len(test),
    pp.test,
    f', {classes} {what}' if classes else '',
  )
  if by := getattr(train, 'split_by', ''):
    logging.info(
      '%s has no test split: images are chosen for it by %s. config.pp.train and'
      ' config.pp.test change how many.',
      config.dataset,
      by,
    )
  class_counts.log(train, test)
  if facts := row_weights.facts(train):
    logging.info(
      'The training loss weighs images by the column %s: %s. Evaluation does not.',
      config.columns.weight,
      row_weights.text(facts),
    )
  if classes == 1 and task == labels_lib.MULTICLASS:
    raise errors.UserError(
      f'{config.dataset} has only one class, {test.class_names[0]!r}: every'
      f' prediction would be right. Add images of something else, such as'
      f' train/other/ and test/other/.'
    )
  return classes


def _check_channels(
  config: ml_collections.ConfigDict, splits: datasets.Splits
) -> None:
  channels, trained = splits.test.num_channels, splits.train.num_channels
  if channels != trained:
    raise errors.UserError(
      f'{config.dataset} has images of {trained} channels to train on'
      f' ({config.pp.train}) and of {channels} to test ({config.pp.test}): all'
      f' must have as many.'
    )
  for name in ('mean', 'std'):
    values = tuple(config.pp[name])
    if len(values) not in (1, channels):
      raise errors.UserError(
        f'config.pp.{name} is {values}, must have 1 value or {channels}, one for'
        f' each channel of the images.'
      )
  for name in ('randaugment', 'color_jitter'):
    if config.pp[name] and splits.train.is_stack:
      raise errors.UserError(
        f'config.pp.{name} is {tuple(config.pp[name])}: it changes the colours of'
        f' pictures with 1 or 3 channels of 8 bits. These images have {channels}'
        f' channels{" of more bits" if splits.train.is_float else ""}: leave it and'
        f' config.pp.augmentation empty.'
      )


def eval_batches(
  data: Data, mesh: jax.sharding.Mesh, batch_size: int
) -> Iterator[dict[str, jax.Array]]:
  """Yields the test split on the devices; each host reads its part.

  Raises:
    preemption.StopRequestedError: if the run must stop.
  """
  parts = pipeline.eval_batches(
    data.test,
    data.eval_transform,
    batch_size=batch_size,
    shard=sharding.data_shard(mesh, batch_size),
    **data.loader,
  )
  for batch in sharding.put_batches(parts, mesh, batch_size):
    preemption.check()
    yield batch


def train_batches(
  data: Data,
  mesh: jax.sharding.Mesh,
  batch_size: int,
  *,
  seed: int,
  first_step: int,
  total_steps: int,
) -> Generator[dict[str, jax.Array], None, None]:
  """Yields the batches of steps `first_step` to `total_steps` on the devices.

  `batch_size` is over all devices; `seed` seeds order and augmentation.
  """
  batches = pipeline.train_batches(
    data.train,
    data.train_transform,
    batch_size=batch_size,
    seed=seed,
    first_step=first_step,
    shard=sharding.data_shard(mesh, batch_size),
    **data.loader,
  )
  left = itertools.islice(batches, total_steps - first_step)
  return sharding.put_batches(left, mesh, batch_size)
