"""Flags that say how labelled images are found, shared by commands."""

from absl import flags

from vit_jax.data import tables


def define_flags() -> None:
  """Defines the flags."""
  flags.DEFINE_string(
    'tfds_data_dir', None, 'Folder of prepared data sets and ReaL labels.'
  )
  default = tables.Columns()
  flags.DEFINE_string(
    'image_column', default.image, "A table's column with paths of images."
  )
  flags.DEFINE_string(
    'label_column', default.label, "A table's column with classes."
  )
  flags.DEFINE_string(
    'split_column', default.split, "A table's column with splits."
  )


def columns() -> tables.Columns:
  """Returns the columns of a table that the flags name."""
  options = flags.FLAGS
  return tables.Columns(
    options.image_column, options.label_column, options.split_column
  )
