"""Sources whose images are rows with labels of any task: of tables, or of shards."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vit_jax.data import folder
from vit_jax.data import splits as splits_lib
from vit_jax.data import unsplit
from vit_jax.data.rows import table_labels


class RowSource:
  """Images in rows, each with its label; a subclass reads the images.

  Attributes:
    class_names: classes, or names of the numbers.
    task: one of `configs.labels.TASKS`.
    units: units of the numbers; empty for none.
    label_shape: () for one class, else [K].
    split_by: how images were chosen for the test; empty if the data set says it.
    ranges: the parts of splits that the rows are.
    weights: see `row_weights`; None for none.
  """

  image_shape: tuple[int, ...] | None = None

  def __init__(
    self,
    names: Sequence[str],
    labels: table_labels.Labels,
    split_by: str = '',
    ranges: splits_lib.Ranges = (),
  ):
    self._names, self._labels = names, labels.values
    self.class_names: Sequence[str] = list(labels.names)
    self.task, self.units = labels.task, tuple(labels.units)
    self.label_shape: tuple[int, ...] = labels.values.shape[1:]
    self.split_by = split_by
    self.ranges = ranges
    self.weights = labels.weights

  def __len__(self) -> int:
    return len(self._names)

  def __getitem__(self, index: int) -> dict[str, Any]:
    label = self._labels[index]
    return {
      'image': self._image(index),
      'label': label if label.ndim else int(label),
      'name': self._names[index],
    }

  def _image(self, index: int) -> bytes | np.ndarray:
    """Returns the content of the file of an image, or its pixels."""
    raise NotImplementedError

  def labels(self) -> np.ndarray:
    """Returns the labels of all images, see `table_labels.Labels`."""
    return self._labels

  def names(self) -> Sequence[str]:
    """Returns a name for each image: its path, or where it lies."""
    return self._names


def of_split(
  split: str,
  of_row: Sequence[str],
  labels: table_labels.Labels,
  hashes: Callable[[list[int]], list[bytes]],
  dataset: str,
) -> tuple[list[int], splits_lib.Ranges]:
  """Returns the rows of a split, in an order that does not depend on theirs.

  Args:
    split: TFDS notation; each slice has its share of every class.
    of_row: the split of each row.
    labels: the labels of all rows.
    hashes: maps rows to what fixes their order.
    dataset: the data set, for messages.

  Returns:
    The rows, and the parts of splits that they are.

  Raises:
    errors.UserError: if the split is missing or empty.
  """
  rows: dict[str, list[int]] = {name: [] for name in sorted(set(of_row))}
  for row, name in enumerate(of_row):
    rows[name].append(row)
  rows, split = folder.with_test(rows, split)
  sizes = {name: len(x) for name, x in rows.items()}
  chosen, ranges = [], splits_lib.parse_split(split, sizes, dataset)
  for name, start, end in ranges:
    groups = [table_labels.group(labels, row) for row in rows[name]]
    order = unsplit.stratified(groups, hashes(rows[name]))
    chosen += [rows[name][i] for i in order[start:end]]
  return chosen, ranges
