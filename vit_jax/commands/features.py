"""Writes the features (embeddings) of images to a file.

vit-jax features --model=/tmp/run/artifact --output=features.npz photos/

An .npz has `features` float32 [N, D] and `names` [N]. A .parquet has a row an image.
Memory use does not grow with the number of images, which are given as in
`vit-jax predict`.
"""

from collections.abc import Sequence

from absl import flags
from absl import logging
import tqdm

from vit_jax.commands import predictor_flags
from vit_jax.data import inputs
from vit_jax.evaluation import feature_files
from vit_jax.models import capture


def define_flags() -> None:
  """Defines the flags of `vit-jax features`."""
  predictor_flags.define_flags()
  flags.DEFINE_string(
    'output', None, 'File to write, .npz or .parquet.', required=True
  )
  flags.DEFINE_integer(
    'layer',
    None,
    'Encoder block to take, from 1; by default the input of the head.',
  )
  flags.DEFINE_enum(
    'pooling',
    None,
    capture.POOLINGS,
    'Class token, mean of the patches, or all tokens; by default as the'
    ' model pools.',
  )


def main(argv: Sequence[str]) -> None:
  options, names = flags.FLAGS, inputs.find(argv[1:])
  predictor = predictor_flags.from_flags()
  rows = predictor.iter_features(names, options.layer, options.pooling)
  bar = tqdm.tqdm(rows, total=len(names), disable=None)
  named = ((names[place], features) for place, features in bar)
  count = feature_files.write(named, options.output)
  if predictor.skipped:
    logging.warning('%d images were skipped.', len(predictor.skipped))
  print(f'The features of {count} images are in {options.output}.')
