"""Writes a model as one program with its weights, for other runtimes.

vit-jax export --model=/tmp/run/artifact --output=model.onnx

A .onnx needs pip install 'vit_jax[onnx]' to write and runs in ONNX Runtime and other
readers of ONNX; its metadata has the labels. A .stablehlo is read by
`jax.export.deserialize(data).call(pixels)` on CPUs, GPUs and TPUs, and by other readers
of StableHLO. Both take a batch of any size, float32 pixels [B, H, W, C] from 0 to 255,
and return float32 logits [B, K], or features if the model has no head. After writing,
the program is run once and compared with the model.
"""

from collections.abc import Sequence

from absl import flags

from vit_jax.commands import cli
from vit_jax.commands import predictor_flags
from vit_jax.weights import programs
from vit_jax.weights import record as weights_lib


def define_flags() -> None:
  """Defines the flags of `vit-jax export`."""
  predictor_flags.define_weights_flags()
  flags.DEFINE_string(
    'output', None, 'New file, .onnx or .stablehlo.', required=True
  )


def main(argv: Sequence[str]) -> None:
  cli.refuse_words(argv)
  options = flags.FLAGS
  weights = predictor_flags.weights_from_flags()
  difference = programs.export(weights, options.output)
  print(f'{options.output}: {weights_lib.describe(weights)}.')
  print(f'Its outputs differ from the model by {difference:.1g} at most.')
