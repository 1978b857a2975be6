"""Both splits of a data set, and their batches on the devices."""

from collections.abc import Iterator
import dataclasses
import itertools

from absl import logging
import grain
import jax
import ml_collections

from vit_jax.data import augment
from vit_jax.data import dataset
from vit_jax.data import mixing
from vit_jax.data import pipeline
from vit_jax.data import preprocessing as preprocessing_lib
from vit_jax.data import sources
from vit_jax.data import subsets
from vit_jax.data import transforms
from vit_jax.runtime import errors
from vit_jax.runtime import preemption
from vit_jax.runtime import sharding


@dataclasses.dataclass(frozen=True)
class Data:
  """Both splits of a data set and how they become batches.

  Attributes:
    train: what to train on.
    test: what to evaluate on.
    train_transform: on the host, of an image of `train`.
    eval_transform: on the host, of an image of `test`.
    preprocessing: how an image of `test` becomes the model's input.
    preprocess: on the device, of a batch.
    mix: on the device, of a preprocessed batch for training; None for nothing.
    loader: arguments of `pipeline.train_batches` and `eval_batches`.
  """

  train: pipeline.Decoded
  test: pipeline.Decoded
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
  def image_shape(self) -> tuple[int, int, int]:
    """[H, W, C] of the model's input."""
    return self.preprocessing.image_shape


def of_config(
  config: ml_collections.ConfigDict, splits: dataset.Splits | None = None
) -> Data:
  """Returns how a data set becomes batches; None opens it."""
  splits = splits or dataset.open_splits(config)
  train, test = splits.train, splits.test
  _check_channels(config, test.num_channels)
  preprocessing = preprocessing_lib.of_config(config, test.num_channels)
  how = {
    'size': preprocessing.size,
    'area': tuple(config.pp.crop_area),
    'ratio': tuple(config.pp.crop_ratio),
    'resize': config.pp.resize,
    'pad': config.pp.pad,
    'pad_mode': config.pp.pad_mode,
    'flip': config.pp.flip,
  }
  classes = len(test.source.class_names)
  logging.info(
    '%s: %d images to train on (%s%s), %d to test (%s)%s.',
    config.dataset,
    len(train),
    config.pp.train,
    _selection(train.source),
    len(test),
    config.pp.test,
    f', {classes} classes' if classes else '',  # There are none of captions.
  )
  if classes == 1:
    raise errors.UserError(
      f'{config.dataset} has only one class, {test.source.class_names[0]!r}: every'
      f' prediction would be right. Add images that are something else, such as'
      f' train/other/ and test/other/.'
    )
  mix = mixing.Mix(classes, config.pp.mixup, config.pp.cutmix)
  return Data(
    train=train,
    test=test,
    train_transform=transforms.TrainImage(
      **how, randaugment=tuple(config.pp.randaugment)
    ),
    eval_transform=transforms.EvalImage(
      preprocessing.size, preprocessing.resize_test
    ),
    preprocessing=preprocessing,
    preprocess=augment.Preprocess(
      **how,
      resize_test=preprocessing.resize_test,
      color_jitter=tuple(config.pp.color_jitter),
      random_erasing=config.pp.random_erasing,
      on_device=test.is_raw,
      mean=preprocessing.mean,
      std=preprocessing.std,
    ),
    mix=mix if mix.mixup or mix.cutmix else None,
    loader={
      'num_threads': config.num_threads,
      'num_workers': config.num_workers,
      'prefetch': config.prefetch,
    },
  )


def _selection(source: sources.Source) -> str:
  """Returns how a subset was chosen, for the log; nothing for a whole split."""
  return f', {source.how}' if isinstance(source, subsets.Subset) else ''


def eval_batches(
  data: Data, mesh: jax.sharding.Mesh, batch_size: int
) -> Iterator[dict[str, jax.Array]]:
  """Yields the test split, each host its part of every batch.

  Raises:
    preemption.StopRequestedError: if the run is to stop.
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


def _check_channels(config: ml_collections.ConfigDict, channels: int) -> None:
  for name, values in (('mean', config.pp.mean), ('std', config.pp.std)):
    if len(values) not in (1, channels):
      raise errors.UserError(
        f'config.pp.{name} is {tuple(values)}, must have 1 value or'
        f' {channels}, as many as the images have channels.'
      )
  for name in ('randaugment', 'color_jitter'):
    if config.pp[name] and channels not in (1, 3):
      raise errors.UserError(
        f'config.pp.{name} is {tuple(config.pp[name])}: it changes the colours of'
        f' images with 1 or 3 channels, these have {channels}.'
      )


def train_batches(
  data: Data,
  mesh: jax.sharding.Mesh,
  batch_size: int,
  *,
  seed: int,
  first_step: int,
  total_steps: int,
) -> Iterator[pipeline.Batch]:
  """Yields the batches that are left of a run, each host its part.

  Args:
    data: the data set; its training split is read, shuffled and augmented.
    mesh: where the batches go.
    batch_size: over all devices.
    seed: seeds the order and the augmentation.
    first_step: steps that are done.
    total_steps: steps of the run.
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
