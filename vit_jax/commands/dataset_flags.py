"""Flags that say how labelled images are found, shared by commands."""

from absl import flags

from vit_jax.data.rows import table_files
from vit_jax.evaluation import labelled
from vit_jax.weights import record as weights_lib


def define_flags() -> None:
  """Defines the flags."""
  flags.DEFINE_string(
    'tfds_data_dir', None, 'Folder of prepared data sets and ReaL labels.'
  )
  default = table_files.Columns()
  flags.DEFINE_string(
    'image_column', default.image, "A table's column with paths of images."
  )
  flags.DEFINE_string(
    'label_column', default.label, "A table's column with classes."
  )
  flags.DEFINE_string(
    'split_column', default.split, "A table's column with splits."
  )
  flags.DEFINE_string(
    'labels_column', default.labels, "A table's column with several classes."
  )
  flags.DEFINE_string(
    'target_column', None, "A table's column, or columns, of numbers."
  )
  flags.DEFINE_string(
    'separator',
    default.separator,
    'What is between the classes of an image in a table.',
  )


def columns(weights: weights_lib.Weights | None = None) -> table_files.Columns:
  """Returns the columns of a table that the flags name, for a model if there is one.

  Weights of images, which only training has, are not read.
  """
  options = flags.FLAGS
  given = {
    'image': options.image_column,
    'label': options.label_column,
    'labels': options.labels_column,
    'split': options.split_column,
    'separator': options.separator,
  }
  if options.target_column:
    given['target'] = options.target_column
  if weights:
    return labelled.columns_of(weights, given)
  return table_files.Columns(**given, weight='')
