"""Sources without images, for planning a run on data that are not here."""

from collections.abc import Sequence
from typing import Any

from vit_jax.data import sources
from vit_jax.data.rows import table_files
from vit_jax.runtime import errors

# Number of classes, and (H, W, C) where all images have one size.
_KNOWN: dict[str, tuple[int, tuple[int, int, int] | None]] = {
  'digits': (10, (8, 8, 1)),
  'cifar10': (10, (32, 32, 3)),
  'cifar100': (100, (32, 32, 3)),
  'imagenet2012': (1000, None),
  'oxford_flowers102': (102, None),
  'oxford_iiit_pet': (37, None),
}


class StandIn:
  """A source without images."""

  def __init__(
    self, num_classes: int, image_shape: tuple[int, ...] | None = None
  ):
    self.class_names: Sequence[str] = [str(i) for i in range(num_classes)]
    self.image_shape = image_shape

  def __len__(self) -> int:
    return 0

  def __getitem__(self, index: int) -> dict[str, Any]:
    raise IndexError(index)


def of_dataset(
  dataset: str,
  split: str,
  *,
  num_classes: int | None = None,
  data_dir: str | None = None,
  columns: table_files.Columns = table_files.DEFAULT,
) -> sources.Source:
  """Returns a source with the classes and image size of a data set.

  Without `num_classes`, they are those that the data set is known to have, or
  has on this machine. Raises `errors.UserError` if it is neither known nor here.
  The others are arguments of `sources.get_source`.
  """
  known, shape = _KNOWN.get(dataset, (None, None))
  if classes := num_classes or known:
    return StandIn(classes, shape)
  try:
    return sources.get_source(
      dataset, split, data_dir=data_dir, columns=columns
    )
  except errors.UserError as e:
    raise errors.UserError(
      f'config.dataset is {dataset!r}, which cannot be read here: give'
      f' num_classes=N. {e}'
    ) from e
