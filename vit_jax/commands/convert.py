"""Converts weights between formats, without PyTorch.

vit-jax convert /tmp/run/artifact /tmp/vit --to=huggingface
"""

from collections.abc import Sequence

from absl import flags

from vit_jax import checkpoint
from vit_jax.commands import cli
from vit_jax.runtime import errors
from vit_jax.weights import formats
from vit_jax.weights import record as weights_lib


def define_flags() -> None:
  """Defines the flags of `vit-jax convert`."""
  flags.DEFINE_enum(
    'to',
    None,
    formats.WRITABLE,
    'Format of the destination.',
    required=True,
  )
  flags.DEFINE_enum(
    'dtype', 'float32', ['float32', 'float16'], 'Type of numbers in an .npz.'
  )
  cli.define_image_size()


def main(argv: Sequence[str]) -> None:
  if len(argv) != 3:
    raise errors.UserError(
      'Give a source and a destination: SRC DST --to=FORMAT.'
    )
  weights = checkpoint.read(argv[1], cli.image_size())
  formats.convert(weights, argv[2], flags.FLAGS.to, flags.FLAGS.dtype)
  print(f'{argv[2]}: {weights_lib.describe(weights)}')
