"""Draws images as training sees them, with their labels, as a contact sheet.

vit-jax show_batch --config=configs/cifar10_scratch.py \
  --config.pp.augmentation=medium1 --output=sheet.png

The images have passed the loader and the preprocessing of the step. Mixed images
have two labels with their shares, which are drawn once per batch: another seed
shows others.
"""

from collections.abc import Sequence

from absl import flags

from vit_jax.commands import cli
from vit_jax.reporting import contact_sheet
from vit_jax.runtime import files


def define_flags() -> None:
  """Defines the flags of `vit-jax show_batch`."""
  cli.define_config()
  flags.DEFINE_integer('num', 64, 'Images shown.', lower_bound=1)
  flags.DEFINE_bool('test', False, 'Show test images, as evaluated.')
  flags.DEFINE_string('output', None, 'PNG file to write.', required=True)


def main(argv: Sequence[str]) -> None:
  cli.refuse_words(argv)
  options = flags.FLAGS
  path = files.output_path(options.output, ('.png',))
  images, captions = contact_sheet.load_batch(
    options.config, options.num, test=options.test
  )
  sheet = contact_sheet.draw(images, captions)
  contact_sheet.write(sheet, path, 'output')
  print(f'{len(images)} images are in {options.output}.')
