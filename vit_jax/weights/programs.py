"""Writes a model as a program for other runtimes: ONNX or StableHLO."""

from collections.abc import Callable, Iterable
from importlib import metadata
import json
import logging
import os
import pathlib
from typing import Any

import jax
from jax import export as jax_export
import jax.numpy as jnp
from jaxtyping import Array, Float
import numpy as np

from vit_jax.data.augmentation import augment
from vit_jax.models import arithmetic
from vit_jax.models import inference
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.weights import quantization
from vit_jax.weights import record as weights_lib

Pixels = Float[np.ndarray, 'B H W C']
Function = Callable[[Float[Array, 'B H W C']], Float[Array, 'B ...']]
Run = Callable[[np.ndarray], np.ndarray]

_PLATFORMS = ('cpu', 'cuda', 'rocm', 'tpu')

# Endings of files, and the precisions that they can have.
PRECISIONS = {
  '.onnx': ('float32', 'float16', 'int8'),
  '.stablehlo': ('float32', 'bfloat16'),
}

# Largest differences of outputs, relative to the largest output. What int8 may
# cost depends on the images: their scores decide.
_TOLERANCES = {
  'float32': 1e-4,
  'float16': 2e-2,
  'bfloat16': 5e-2,
  'int8': float('inf'),
}


def program(weights: weights_lib.Weights, dtype: str = 'float32') -> Function:
  """Returns the function from pixels (0 to 255) to float32 logits.

  The logits are divided by the temperature of the weights.

  The parameters are its constants. Of two towers, it is the image tower.

  Args:
    weights: the model.
    dtype: 'float32' or 'bfloat16', see `arithmetic`.
  """
  weights = weights.image_tower().with_temperature_in_head()
  weights_lib.check_vision(weights)
  module = weights.module().clone(dtype=jnp.dtype(dtype))
  params = inference.cast_weights(dict(weights.params), module.dtype)
  params = jax.tree.map(np.asarray, params)

  def call(pixels: Float[Array, 'B H W C']) -> Array:
    images = augment.normalize(
      pixels, weights.preprocessing.mean, weights.preprocessing.std
    )
    logits = module.apply({'params': params}, images, train=False)
    return jnp.asarray(logits).astype(jnp.float32)

  return call


def export(
  weights: weights_lib.Weights,
  output: str,
  *,
  precision: str = 'float32',
  calibration: Iterable[Pixels] = (),
  check: Callable[[Run], None] = lambda run: None,
) -> float:
  """Writes a program to a new .onnx or .stablehlo, whole or not at all.

  Args:
    weights: the model.
    output: the file.
    precision: one of `PRECISIONS`.
    calibration: batches of pixels from 0 to 255, in float32, for the ranges of int8.
    check: is called with the program before it gets its name; may raise.

  Returns:
    The largest difference between its outputs and those of the model, for three
    random images, relative to the largest output.

  Raises:
    errors.UserError: if the file exists, cannot be written, or gives other
      outputs than the model, or if its head is all zeros.
  """
  path = check_output(output, precision)
  if weights.class_names:
    weights_lib.check_can_predict(weights)
  function = program(weights)
  try:
    # More than 2 GB of weights take a second file, which must lie beside it.
    with files.replaced_file(path) as temporary:
      if path.suffix == '.onnx':
        run = _write_onnx(weights, temporary, precision, calibration)
      else:
        run = _write_stablehlo(weights, temporary, precision)
      difference = _difference(run, function, weights.input_shape(), precision)
      check(run)
      return difference
  except OSError as e:
    raise errors.UserError(f'{path} cannot be written: {e.strerror}.') from e


def check_output(output: str, precision: str) -> pathlib.Path:
  """Returns the path of a program; raises if it exists or cannot have a precision."""
  path = files.output_path(output, PRECISIONS)
  if precision not in PRECISIONS[path.suffix]:
    raise errors.UserError(
      f'quantize={precision} is not possible in output={output}: {path.suffix} files'
      f' can have {", ".join(PRECISIONS[path.suffix])}.'
    )
  if os.path.lexists(path):
    raise errors.UserError(f'{path} exists. Delete it or name another.')
  return path


def _difference(
  run: Run, function: Function, shape: tuple[int, int, int], precision: str
) -> float:
  rng = np.random.default_rng(0)
  pixels = rng.uniform(0, 255, (3, *shape)).astype(np.float32)
  want = np.asarray(jax.jit(function)(pixels))
  got = run(pixels)
  difference = float('inf')
  if got.shape == want.shape:
    scale = max(np.abs(want).max(), 1e-12)
    difference = float(np.abs(got - want).max() / scale)
  if got.shape != want.shape or not difference <= _TOLERANCES[precision]:
    hint = 'Please report it, with the versions that `pip list` shows.'
    if precision != 'float32':
      hint = f'Its numbers do not fit into {precision}: leave quantize out.'
    raise errors.UserError(
      f'The outputs of the program, {got.shape}, differ from those of the model,'
      f' {want.shape}, by {difference:.2g} of the largest. Nothing was written.'
      f' {hint}'
    )
  return difference


def _write_stablehlo(
  weights: weights_lib.Weights, path: pathlib.Path, precision: str
) -> Run:
  (batch,) = jax_export.symbolic_shape('batch')
  shape = (batch, *weights.input_shape())
  pixels = jax.ShapeDtypeStruct(shape, jnp.float32)
  jitted = jax.jit(program(weights, precision))
  exported = jax_export.export(jitted, platforms=_PLATFORMS)(pixels)
  path.write_bytes(exported.serialize())
  again = jax_export.deserialize(bytearray(path.read_bytes()))
  return lambda pixels: np.asarray(again.call(pixels))


def _write_onnx(
  weights: weights_lib.Weights,
  path: pathlib.Path,
  precision: str,
  calibration: Iterable[Pixels],
) -> Run:
  try:
    import jax2onnx  # noqa: F401
    import onnx
    import onnxruntime
  except ImportError as e:
    raise errors.UserError(
      f"{path.name} needs more: pip install 'vit_jax[onnx]'. A .stablehlo does not."
    ) from e
  model = _onnx_model(weights)
  if precision == 'float16':
    model = quantization.to_float16(model)
  notes = {
    'labels': json.dumps(list(weights.class_names)),
    'image_shape': json.dumps(weights.image_shape),
    'task': json.dumps(weights.task),
    'loss': json.dumps(weights.loss),
    'thresholds': json.dumps(list(weights.thresholds)),
    'units': json.dumps(list(weights.units)),
  }
  onnx.helper.set_model_props(model, notes)
  if precision == 'int8':
    quantization.write_int8(model, path, calibration)
  else:
    onnx.save(model, path, save_as_external_data=quantization.is_large(model))
  session = onnxruntime.InferenceSession(path)
  return lambda pixels: session.run(None, {'pixels': pixels})[0]


def _onnx_model(weights: weights_lib.Weights) -> Any:
  """Returns the `onnx.ModelProto` of a model in float32."""
  import jax2onnx

  # It warns about each symbolic dimension.
  logging.getLogger('onnx_ir').setLevel(logging.ERROR)
  try:
    with arithmetic.as_matmul():
      return jax2onnx.to_onnx(
        program(weights),
        [('batch', *weights.input_shape())],
        model_name='vit_jax',
        input_names=['pixels'],
        output_names=['logits' if weights.class_names else 'features'],
      )
  except Exception as e:  # jax2onnx reads JAX's internals, which change.
    raise errors.UserError(
      f'jax2onnx {metadata.version("jax2onnx")} cannot convert this model with'
      f' jax {jax.__version__} ({type(e).__name__}: {errors.first_line(e)}).'
      f' Nothing was written. Try a .stablehlo, or an older jax.'
    ) from e
