"""Puts a model on the Hugging Face hub, with a card that says how it was made.

vit-jax push /tmp/run USER/NAME --license=mit

The first word is the workdir of a run, or any weights. The files are those of
transformers, or of timm if transformers lacks the model; `hf://USER/NAME`, for --model
and config.pretrained, reads them again with all that they say. Log in with
`hf auth login`, or set HF_TOKEN.
"""

from collections.abc import Sequence
import pathlib
import tempfile

from absl import flags

from vit_jax import checkpoint
from vit_jax.reporting import model_card
from vit_jax.runtime import errors
from vit_jax.runtime import workdir as workdir_lib
from vit_jax.weights import formats
from vit_jax.weights import hub
from vit_jax.weights import record as weights_lib

_LIBRARIES = {'huggingface': 'transformers', 'timm': 'timm'}


def define_flags() -> None:
  """Defines the flags of `vit-jax push`."""
  flags.DEFINE_string(
    'license', '', 'Name of the license on the hub, such as apache-2.0.'
  )
  flags.DEFINE_string(
    'revision', None, 'Branch, made if needed; by default main.'
  )
  flags.DEFINE_bool(
    'private', False, 'Whether a new repository is for its owner alone.'
  )
  flags.DEFINE_string(
    'message', 'Upload a model of vit_jax', 'Message of the commit.'
  )


def _convert(weights: weights_lib.Weights, folder: str) -> str:
  """Writes weights for a library that has the model; returns its name."""
  reasons = []
  for to, library in _LIBRARIES.items():
    try:
      formats.convert(weights, folder, to)
      return library
    except errors.UserError as e:
      reasons.append(f'{library}: {e}')
  raise errors.UserError(
    f'The model cannot be pushed, as no library has it. {" ".join(reasons)}'
  )


def main(argv: Sequence[str]) -> None:
  options = flags.FLAGS
  if len(argv) != 3 or argv[2].count('/') != 1:
    raise errors.UserError(
      'Give a run or weights, and USER/NAME: vit-jax push /tmp/run USER/NAME'
    )
  run = workdir_lib.find_run(argv[1])
  weights = checkpoint.read(run.artifact if run else argv[1])
  with tempfile.TemporaryDirectory() as temporary:
    folder = pathlib.Path(temporary) / 'model'
    library = _convert(weights, str(folder))
    model_card.write(
      folder,
      weights,
      argv[2],
      library=library,
      run=run,
      license_name=options.license,
    )
    address = hub.push(
      folder,
      argv[2],
      revision=options.revision,
      private=options.private,
      message=options.message,
    )
  print(f'{argv[1]} is at {address}')
