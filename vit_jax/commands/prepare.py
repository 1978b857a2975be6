"""Prepares a TFDS data set once, as array_record, to be read without TensorFlow.

pip install 'vit_jax[prepare]'
vit-jax prepare oxford_flowers102
"""

from collections.abc import Sequence

from absl import flags
import tensorflow_datasets as tfds

from vit_jax.runtime import errors


def prepare(
  dataset: str, data_dir: str | None = None, manual_dir: str | None = None
) -> str:
  """Downloads and converts a data set; returns the folder it is in.

  Raises:
    errors.UserError: if there is no such data set, it cannot be downloaded, or
      TensorFlow is not installed.
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
  except (tfds.core.DatasetNotFoundError, OSError) as e:
    reason = errors.first_line(e)  # TFDS adds its whole catalogue.
    raise errors.UserError(f'{dataset} cannot be prepared: {reason}') from e
  return str(builder.data_path)


def define_flags() -> None:
  """Defines the flags of `vit-jax prepare`."""
  flags.DEFINE_string(
    'data_dir', None, 'Where to put it; default: ~/tensorflow_datasets.'
  )
  flags.DEFINE_string(
    'manual_dir', None, 'Where files are that must be downloaded by hand.'
  )


def main(argv: Sequence[str]) -> None:
  if len(argv) < 2:
    raise errors.UserError('Name at least one data set.')
  for dataset in argv[1:]:
    print(prepare(dataset, flags.FLAGS.data_dir, flags.FLAGS.manual_dir))
