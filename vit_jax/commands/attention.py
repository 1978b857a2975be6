"""Draws what a Vision Transformer looks at, and what its first layer holds.

vit-jax attention --model=/tmp/run/artifact --output=/tmp/pictures IMAGE...

writes for each IMAGE, `photo.jpg` say,
  photo_rollout.png     the image and attention rollout on it (the paper's Fig. 6)
  photo_last_layer.png  the heads of the last layer, and their mean, on the image
  photo_heads.png       all heads of all layers
and of the model
  distances.png         how far the heads look, by layer (Fig. 7, right)
  positions.png         similarity of position embeddings (Fig. 7, centre)
  filters.png           principal components of the first layer (Fig. 7, left)
What IMAGE may be, `vit-jax predict` says. Of models with a class token its attention is
shown, of others the mean over all tokens.
"""

from collections.abc import Sequence

from absl import flags

from vit_jax.commands import predictor_flags
from vit_jax.data import inputs
from vit_jax.reporting import attention_pictures
from vit_jax.runtime import storage


def define_flags() -> None:
  """Defines the flags of `vit-jax attention`."""
  predictor_flags.define_flags()
  flags.DEFINE_string('output', None, 'Folder for the pictures.', required=True)


def main(argv: Sequence[str]) -> None:
  names = inputs.find(argv[1:])
  predictor = predictor_flags.from_flags()
  for path in attention_pictures.draw(
    predictor, names, storage.local_path(flags.FLAGS.output)
  ):
    print(path)
