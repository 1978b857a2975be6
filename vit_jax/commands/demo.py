"""Serves a page that classifies dropped images and draws attention.

vit-jax demo --model=/tmp/run/artifact

Numbers are shown with their units; where an image may have several classes, the most
probable ones with their thresholds, and whether they reach them.

A model of other channels than 1 and 3 takes .npy files and TIFFs.

Needs pip install 'vit_jax[demo]'. The page is at 127.0.0.1, which only this machine
reaches, unless --host names another address.
"""

from collections.abc import Sequence

from absl import flags

from vit_jax import predictor as predictor_lib
from vit_jax.commands import predictor_flags
from vit_jax.reporting import demo_page
from vit_jax.runtime import errors


def define_flags() -> None:
  """Defines the flags of `vit-jax demo`."""
  predictor_flags.define_weights_flags()
  flags.DEFINE_integer('top_k', 5, 'Classes to show.', lower_bound=1)
  flags.DEFINE_string('host', '127.0.0.1', 'Address to listen at.')
  flags.DEFINE_integer(
    'port',
    None,
    'By default the first free one from 7860.',
    lower_bound=1,
    upper_bound=65535,
  )
  flags.DEFINE_integer('max_mb', 10, 'Largest image, in MB.', lower_bound=1)


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise errors.UserError(f'{argv[1]}: only flags are taken.')
  options = flags.FLAGS
  predictor = predictor_lib.Predictor(predictor_flags.weights_from_flags())
  blocks = demo_page.page(predictor, options.model, options.top_k)
  demo_page.serve(
    blocks, host=options.host, port=options.port, max_mb=options.max_mb
  )
