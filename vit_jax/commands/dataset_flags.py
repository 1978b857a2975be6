"""Flags that say how labelled images are found, shared by commands."""

from absl import flags

from vit_jax.configs import labels as labels_lib
from vit_jax.data.rows import table_files
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

  The numbers that a model predicts have the names of their columns. Weights of images,
  which only training has, are not read.
  """
  options, target, task = flags.FLAGS, table_files.DEFAULT.target, ''
  if weights:
    task = weights.task
    if task == labels_lib.REGRESSION:
      target = ','.join(weights.class_names)
  return table_files.Columns(
    image=options.image_column,
    label=options.label_column,
    labels=options.labels_column,
    target=options.target_column or target,
    split=options.split_column,
    separator=options.separator,
    weight='',
    task=task,
  )
