"""The data set of a config, opened once: its training and its test split."""

import dataclasses

import ml_collections

from vit_jax.configs import spec
from vit_jax.data import captions
from vit_jax.data import pipeline
from vit_jax.data import sources
from vit_jax.data import subsets
from vit_jax.runtime import errors
from vit_jax.runtime import sharding
from vit_jax.runtime import storage


@dataclasses.dataclass(frozen=True)
class Splits:
  """Both splits, opened; no image of a folder is read yet.

  Attributes:
    train: what to train on, after `pp.shots` and `pp.balance_classes`: an epoch
      is its length.
    test: what to evaluate on.
  """

  train: pipeline.Decoded
  test: pipeline.Decoded


def open_splits(config: ml_collections.ConfigDict) -> Splits:
  """Opens the images, or for LiT models the images and captions, of a config.

  Raises:
    errors.UserError: if the data set is not there or does not fit a setting.
  """
  split = _pairs if spec.has_texts(config.model) else _images
  return Splits(
    train=split(config, config.pp.train, train=True),
    test=split(config, config.pp.test, train=False),
  )


def _images(
  config: ml_collections.ConfigDict, split: str, train: bool
) -> pipeline.Decoded:
  with sharding.first_process_first():
    source = sources.get_source(
      config.dataset, split, data_dir=config.tfds_data_dir
    )
  if isinstance(source, sources.ArraySource):
    _check_arrays(config, source)
  if train and config.pp.shots:
    source = subsets.few_shots(source, config.pp.shots)
  if train and config.pp.balance_classes:
    source = subsets.balanced(source)
  return pipeline.Decoded(
    source,
    exif=config.pp.exif,
    on_bad_image=config.on_bad_image,
    channels=config.pp.channels,
    train=train,
    on_host=bool(config.pp.randaugment),
  )


def _check_arrays(
  config: ml_collections.ConfigDict, source: sources.ArraySource
) -> None:
  """Refuses what only image files have."""
  channels = source.image_shape[-1]
  if config.pp.channels not in (None, channels):
    raise errors.UserError(
      f'config.pp.channels is {config.pp.channels}: only image files can be read'
      f' so; {config.dataset} has {channels} channels.'
    )
  if config.pp.exif:
    raise errors.UserError(
      f'config.pp.exif is True: only image files have EXIF tags, and'
      f' {config.dataset} has none. Leave it False.'
    )


def _pairs(
  config: ml_collections.ConfigDict, split: str, train: bool
) -> captions.DecodedPairs:
  return captions.DecodedPairs(
    captions.open_captions(storage.local_path(config.dataset), split),
    exif=config.pp.exif,
    on_bad_image=config.on_bad_image,
    train=train,
  )
