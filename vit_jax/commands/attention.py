"""Draws where a Vision Transformer attends, and what its first layer holds.

vit-jax attention --model=/tmp/run/artifact --output=/tmp/pictures photo.jpg

writes for each image, given as in `vit-jax predict`,
  photo_rollout.png     the image and its attention rollout (the paper's Fig. 6)
  photo_last_layer.png  the heads of the last layer, and their mean, on the image
  photo_heads.png       all heads of all layers
and for the model
  distances.png         mean attention distance by layer (Fig. 7, right)
  positions.png         similarity of position embeddings (Fig. 7, centre)
  filters.png           principal components of the first layer (Fig. 7, left)
Models with a class token show its attention, others the mean over all patches.
Attention to registers and other tokens is not in the pictures.
"""

from collections.abc import Sequence

from absl import flags
from absl import logging

from vit_jax.commands import predictor_flags
from vit_jax.data import inputs
from vit_jax.reporting import attention_pictures
from vit_jax.reporting import colours
from vit_jax.runtime import storage


def define_flags() -> None:
  """Defines the flags of `vit-jax attention`."""
  predictor_flags.define_flags()
  flags.DEFINE_string('output', None, 'Folder for the pictures.', required=True)


def main(argv: Sequence[str]) -> None:
  names = inputs.find(argv[1:])
  predictor = predictor_flags.from_flags()
  folder = storage.local_path(flags.FLAGS.output)
  if note := colours.note(predictor.image_shape[-1]):
    logging.info('%s', note)
  for path in attention_pictures.draw(predictor, names, folder):
    print(path)
