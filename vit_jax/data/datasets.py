"""Opens the data set of a config, and completes the settings that it decides."""

from collections.abc import Collection, Mapping
import dataclasses
import itertools
from typing import Any

from absl import logging
import ml_collections

from vit_jax.configs import labels as labels_lib
from vit_jax.configs import resolved
from vit_jax.data import captions
from vit_jax.data import pipeline
from vit_jax.data import pixel_values
from vit_jax.data import sources
from vit_jax.data import subsets
from vit_jax.data.rows import row_weights
from vit_jax.data.rows import table_files
from vit_jax.runtime import errors
from vit_jax.runtime import sharding
from vit_jax.runtime import storage


@dataclasses.dataclass(frozen=True)
class Splits:
  """Both splits, opened; images of folders are read later.

  An epoch is the length of `train`, after `pp.shots` and `pp.balance_classes`.
  """

  train: pipeline.Decoded
  test: pipeline.Decoded
  holdout: pipeline.Decoded | None = None


def with_data(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
  """Returns a config with the splits, the task, the loss and the metric of its data.

  Raises:
    errors.UserError: if a setting does not go with the labels of the data set.
  """
  config = config.copy_and_resolve_references().unlock()
  columns = columns_of(config)
  task = labels_lib.MULTICLASS  # Captions count as one class an image.
  if not labels_lib.has_captions(config):
    task = sources.task(config.dataset, columns)
  config.pp.train, config.pp.test = sources.default_splits(
    config.dataset, config.pp.train, config.pp.test, columns
  )
  if not config.task and task != labels_lib.MULTICLASS:
    logging.info('The task is %s, as the columns tell.', task)
  return labels_lib.complete(config, task)


def columns_of(config: ml_collections.ConfigDict) -> table_files.Columns:
  """Returns what the columns of a table are."""
  return table_files.Columns(**config.columns, task=config.task)


def open_splits(
  config: ml_collections.ConfigDict, settings: Mapping[str, str] | None = None
) -> Splits:
  """Opens the images of a config, for LiT models with captions.

  Args:
    config: settings, see `with_data`.
    settings: names of the settings that gave `pp.train`, `pp.test` or
      `pp.holdout`, for messages; default: those themselves.

  Raises:
    errors.UserError: if they cannot be opened, or two splits have images in common.
      A run that only evaluates, or only trains, may use the same for both.
  """
  split = _pairs if labels_lib.has_captions(config) else _images
  train = split(config, config.pp.train, train=True)
  test = split(config, config.pp.test, train=False)
  opened = {'train': train, 'test': test}
  if config.pp.holdout:
    opened['holdout'] = split(config, config.pp.holdout, train=False)
  uses_both = config.trainer != 'evaluate' and resolved.evaluates(config)
  for pair in itertools.combinations(opened, 2):
    if pair == ('train', 'test') and not uses_both:
      continue
    named = [(settings or {}).get(name, f'config.pp.{name}') for name in pair]
    sources.refuse_overlap(
      {k: config.pp[name] for k, name in zip(named, pair, strict=True)},
      [opened[name].source for name in pair],
    )
  return Splits(**opened)


def with_scale(
  config: ml_collections.ConfigDict, splits: Splits, names: Collection[str]
) -> ml_collections.ConfigDict:
  """Returns a config whose `names`, 'mean' and 'std' of pixels, are measured.

  Those of pictures stay as they are.
  """
  train = splits.train
  if not train.is_stack or not names:
    return config
  config = config.copy_and_resolve_references()
  measured = pixel_values.measure(train.source, train.num_channels)
  for name in names:
    config.pp[name] = measured[name]
  return config


def layout(
  config: ml_collections.ConfigDict, source: sources.Source
) -> dict[str, Any]:
  """Returns the fields of `pipeline.Decoded` that the first image decides."""
  kind = pixel_values.kind(source)
  return {
    'channels': config.pp.channels or kind.channels,
    'is_float': kind.is_float,
    # Transforms on the device are for 8 bits.
    'on_host': bool(config.pp.randaugment) or kind.is_float,
  }


def _images(
  config: ml_collections.ConfigDict, split: str, train: bool
) -> pipeline.Decoded:
  with sharding.first_process_first():
    source = sources.get_source(
      config.dataset,
      split,
      data_dir=config.tfds_data_dir,
      columns=columns_of(config),
    )
  if isinstance(source, sources.ArraySource):
    _check_arrays(config, source.num_channels)
  if train and config.pp.shots:
    source = subsets.few_shots(source, config.pp.shots)
  if train and config.pp.balance_classes:
    source = subsets.balanced(source)
  return pipeline.Decoded(
    source,
    exif=config.pp.exif,
    on_bad_image=config.on_bad_image,
    train=train,
    weights=row_weights.scaled(source) if train else None,
    **layout(config, source),
  )


def _check_arrays(config: ml_collections.ConfigDict, channels: int) -> None:
  """Refuses settings that apply to image files only."""
  if config.pp.channels not in (None, channels):
    raise errors.UserError(
      f'config.pp.channels is {config.pp.channels}: only image files can be'
      f' converted; {config.dataset} has {channels} channels.'
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
