"""Writes a model as one program with its weights, for other runtimes.

vit-jax export --model=/tmp/run/artifact --output=model.onnx

A .onnx, which needs pip install 'vit_jax[onnx]', runs in ONNX Runtime and what else
reads ONNX; its metadata has the labels. A .stablehlo is read by
`jax.export.deserialize(data).call(pixels)` on CPUs, GPUs and TPUs, and by what else
reads StableHLO. Both take a batch of any size, float32 pixels [B, H, W, C] from 0 to
255, and give float32 logits [B, K], or features of a model without a head. The program
is run once and compared with the model.
"""

from collections.abc import Sequence

from absl import flags

from vit_jax.commands import predictor_flags
from vit_jax.runtime import errors
from vit_jax.weights import programs
from vit_jax.weights import record as weights_lib


def define_flags() -> None:
  """Defines the flags of `vit-jax export`."""
  predictor_flags.define_weights_flags()
  flags.DEFINE_string(
    'output', None, 'New file, .onnx or .stablehlo.', required=True
  )


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise errors.UserError(f'{argv[1]}: only flags are taken.')
  options = flags.FLAGS
  weights = predictor_flags.weights_from_flags()
  difference = programs.export(weights, options.output)
  print(f'{options.output}: {weights_lib.describe(weights)}.')
  print(f'Its outputs differ from the model by {difference:.1g} at most.')
