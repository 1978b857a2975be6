"""TFDS data sets: prepares them, and opens what is prepared, without TensorFlow."""

from collections.abc import Sequence
import functools
import pathlib
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from vit_jax.data import splits as splits_lib
from vit_jax.runtime import errors


class TfdsSource:
  """A TFDS data set in the array_record format; images stay encoded."""

  reads_labels = True  # For `labels`, which reads the images too.

  def __init__(
    self,
    builder: tfds.core.DatasetBuilder,
    split: str,
    ranges: splits_lib.Ranges,
  ):
    features = builder.info.features
    if not {'image', 'label'} <= set(features):
      raise errors.UserError(
        f'{builder.name} has features {sorted(features)}; image classification'
        f' needs `image` and `label`.'
      )
    shape = features['image'].shape
    self.image_shape: tuple[int, ...] | None = (
      None if None in shape else tuple(shape)
    )
    self.class_names: Sequence[str] = list(features['label'].names)
    self.ranges = ranges
    self._name = f'{builder.name} {split}'
    self._has_file_names = 'file_name' in features
    self._records = builder.as_data_source(
      split, decoders={'image': tfds.decode.SkipDecoding()}
    )

  def __len__(self) -> int:
    return len(self._records)

  def __getitem__(self, index: int) -> dict[str, Any]:
    record = self._records[index]
    name = f'{self._name}, record {index}'
    if self._has_file_names:
      name += f', {record["file_name"].decode()}'
    label = int(record['label'])
    return {'image': record['image'], 'label': label, 'name': name}

  def labels(self) -> np.ndarray:
    """Returns the labels, int [N]; reads the whole split."""
    return np.array([int(record['label']) for record in self._records])

  def names(self) -> list[str]:
    """Returns the names of all images, without those of their files."""
    return [f'{self._name}, record {i}' for i in range(len(self))]


@functools.cache
def _builder(dataset: str, root: pathlib.Path) -> tfds.core.DatasetBuilder:
  name, _, version = dataset.partition(':')
  found = {
    path.parent: path.parent.parent.relative_to(root).as_posix()
    for path in root.glob(f'{name}/**/dataset_info.json')
    if version in ('', path.parent.name)
  }
  if not found:
    raise errors.UserError(
      f'{dataset} is neither a folder nor prepared in {root}. Prepare it once:'
      f" pip install 'vit_jax[prepare]', then"
      f' vit-jax prepare {dataset} --data_dir={root}'
    )
  configs = sorted(set(found.values()))
  if len(configs) > 1:
    raise errors.UserError(
      f'{dataset} is prepared in several configs. Choose one of'
      f' {", ".join(configs)}.'
    )
  newest = max(found, key=lambda path: tfds.core.Version(path.name))
  # From the files alone: the code of a catalogue entry may need TensorFlow.
  return tfds.builder_from_directory(newest)


def open_split(dataset: str, split: str, root: pathlib.Path) -> TfdsSource:
  """Opens a split of a data set in the folder of data sets, `root`."""
  builder = _builder(dataset, root)
  sizes = {k: v.num_examples for k, v in builder.info.splits.items()}
  ranges = splits_lib.parse_split(split, sizes, dataset)
  try:
    return TfdsSource(builder, split, ranges)
  except NotImplementedError as e:
    path = builder.data_path
    raise errors.UserError(
      f'{path} is not in the array_record format. Convert it once: tfds'
      f' convert_format --dataset_dir={path} --out_dir=OTHER'
      f' --out_file_format=array_record'
    ) from e


def prepare(
  dataset: str, data_dir: str | None = None, manual_dir: str | None = None
) -> str:
  """Downloads a TFDS data set as array_record; returns the folder it is in.

  Args:
    dataset: name of the data set.
    data_dir: folder of data sets; None for the default of TFDS.
    manual_dir: folder of the files that TFDS does not download, such as
      ILSVRC2012_img_train.tar of imagenet2012.

  Raises:
    errors.UserError: if there is no such data set, or its files are not there.
  """
  try:
    builder = tfds.builder(
      dataset, data_dir=data_dir, file_format='array_record'
    )
    builder.download_and_prepare(
      download_config=tfds.download.DownloadConfig(manual_dir=manual_dir)
    )
  except ImportError as e:
    raise errors.UserError(
      f'{dataset} cannot be prepared without {e.name}: pip install'
      f" 'vit_jax[prepare]'"
    ) from e
  # Of TFDS: an unknown configuration is a ValueError, a file that users must fetch
  # themselves and have not an AssertionError.
  except (
    *(tfds.core.DatasetNotFoundError, tfds.download.DownloadError),
    *(OSError, ValueError, AssertionError),
  ) as e:
    reason = errors.first_line(e)  # TFDS adds its whole catalogue.
    raise errors.UserError(f'{dataset} cannot be prepared: {reason}') from e
  return str(builder.data_path)
