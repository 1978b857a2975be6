"""Prepares a TFDS data set once, as array_record, to be read without TensorFlow.

pip install 'vit_jax[prepare]'
vit-jax prepare oxford_flowers102
"""

from collections.abc import Sequence

from absl import flags

from vit_jax.data import prepared
from vit_jax.runtime import errors


def define_flags() -> None:
  """Defines the flags of `vit-jax prepare`."""
  flags.DEFINE_string(
    'data_dir', None, 'Where to put it; default: ~/tensorflow_datasets.'
  )
  flags.DEFINE_string(
    'manual_dir', None, 'Folder of files that must be downloaded by hand.'
  )


def main(argv: Sequence[str]) -> None:
  options = flags.FLAGS
  if len(argv) < 2:
    raise errors.UserError('Name at least one data set.')
  for dataset in argv[1:]:
    print(prepared.prepare(dataset, options.data_dir, options.manual_dir))
