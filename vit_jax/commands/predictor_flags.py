"""The flags by which command lines name a trained model."""

from absl import flags

from vit_jax import predictor
from vit_jax.commands import cli
from vit_jax.weights import record as weights_lib


def define_weights_flags() -> None:
  """Defines the flags that `weights_from_flags` reads."""
  flags.DEFINE_string(
    'model',
    None,
    'WORKDIR/artifact, or whatever else config.pretrained takes.',
    required=True,
  )
  cli.define_image_size()


def define_flags() -> None:
  """Defines the flags that `from_flags` reads."""
  define_weights_flags()
  flags.DEFINE_integer('batch', 32, 'Images at a time.', lower_bound=1)
  flags.DEFINE_enum(
    'on_bad_image',
    'raise',
    ['raise', 'skip'],
    'What to do with what is no image.',
  )


def weights_from_flags() -> weights_lib.Weights:
  """Returns what the flags name; raises what `predictor.load` does."""
  return predictor.read(flags.FLAGS.model, cli.image_size())


def from_flags() -> predictor.Predictor:
  """Returns what the flags name; raises what `predictor.load` does."""
  options = flags.FLAGS
  return predictor.Predictor(
    weights_from_flags(),
    batch_size=options.batch,
    on_bad_image=options.on_bad_image,
  )
