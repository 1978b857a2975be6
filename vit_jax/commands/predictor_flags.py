"""The flags by which commands name a trained model."""

from collections.abc import Sequence
import os

from absl import flags

from vit_jax import checkpoint
from vit_jax import predictor
from vit_jax.commands import cli
from vit_jax.configs import common
from vit_jax.evaluation import ensemble
from vit_jax.runtime import errors
from vit_jax.weights import record as weights_lib


def define_weights_flags() -> None:
  """Defines the flags that `weights_from_flags` reads."""
  flags.DEFINE_string(
    'model',
    None,
    'Trained model: the workdir of a run, or its artifact; a file or folder of'
    ' weights (.npz, Hugging Face, timm); an address; or a released name, see'
    ' vit-jax models.',
    required=True,
  )
  cli.define_image_size()


def define_flags() -> None:
  """Defines the flags that `from_flags` reads."""
  define_weights_flags()
  define_image_flags()
  flags.DEFINE_enum(
    'dtype',
    None,
    common.RULES['dtype'].choices,
    'Precision of the computation, by default that of the run that made the model,'
    ' else float32.',
  )


def define_averaging_flags() -> None:
  """Defines the flags of `define_flags`, and those that `averaged` reads."""
  define_flags()
  flags.DEFINE_bool(
    'mirror',
    False,
    'Average the predictions of each image and its mirror image.',
  )


def define_image_flags() -> None:
  """Defines the flags of the images that a model is applied to."""
  flags.DEFINE_integer(
    'batch', 32, 'Batch size over all devices.', lower_bound=1
  )
  flags.DEFINE_enum(
    'on_bad_image',
    'raise',
    ['raise', 'skip'],
    'Whether an image that cannot be decoded is an error or is skipped.',
  )


def weights_from_flags() -> weights_lib.Weights:
  """Returns the weights that the flags name; raises as `predictor.load` does."""
  return checkpoint.read(flags.FLAGS.model, cli.image_size())


def from_flags() -> predictor.Predictor:
  """Returns the model that the flags name; raises as `predictor.load` does."""
  return from_weights(weights_from_flags(), dtype=flags.FLAGS.dtype)


def from_weights(
  weights: weights_lib.Weights,
  *,
  mirror: bool = False,
  dtype: str | None = None,
) -> predictor.Predictor:
  """Returns a model that is applied to images as the flags say."""
  options = flags.FLAGS
  return predictor.Predictor(
    weights,
    batch_size=options.batch,
    on_bad_image=options.on_bad_image,
    mirror=mirror,
    dtype=dtype,
  )


def all_weights_from_flags() -> list[weights_lib.Weights]:
  """Returns the weights of each model that --model names, with commas between."""
  name = flags.FLAGS.model
  names = [name] if os.path.exists(name) else name.split(',')
  if not all(names):
    raise errors.UserError(
      f'--model={name} has an empty name. Leave out a comma at the start or end.'
    )
  return [checkpoint.read(name, cli.image_size()) for name in names]


def averaged(
  weights: Sequence[weights_lib.Weights],
) -> tuple[predictor.Predictor | ensemble.Ensemble, predictor.Predictor]:
  """Returns one model, or several that predict together, and the first of them."""
  how = {'mirror': flags.FLAGS.mirror, 'dtype': flags.FLAGS.dtype}
  models = [from_weights(x, **how) for x in weights]
  first = models[0]
  return first if len(models) == 1 else ensemble.Ensemble(models), first
