"""Writes a model as a program for other runtimes: ONNX or StableHLO."""

from collections.abc import Callable
from importlib import metadata
import json
import logging
import os
import pathlib

import jax
from jax import export as jax_export
import jax.numpy as jnp
from jaxtyping import Array, Float
import numpy as np

from vit_jax.data.augmentation import augment
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import storage
from vit_jax.weights import record as weights_lib

Function = Callable[[Float[Array, 'B H W C']], Float[Array, 'B ...']]
Run = Callable[[np.ndarray], np.ndarray]

_PLATFORMS = ('cpu', 'cuda', 'rocm', 'tpu')
_TOLERANCE = 1e-4


def program(weights: weights_lib.Weights) -> Function:
  """Returns the function from pixels (0 to 255) to logits, in float32.

  The parameters are its constants. Of two towers, it is the image tower.
  """
  weights = weights.image_tower()
  weights_lib.check_vision(weights)
  module = weights.module().clone(dtype=jnp.float32)
  params = jax.tree.map(np.asarray, dict(weights.params))

  def call(pixels: Float[Array, 'B H W C']) -> Array:
    images = augment.normalize(
      pixels, weights.preprocessing.mean, weights.preprocessing.std
    )
    return jnp.asarray(module.apply({'params': params}, images, train=False))

  return call


def export(weights: weights_lib.Weights, output: str) -> float:
  """Writes a program to a new .onnx or .stablehlo, whole or not at all.

  Returns:
    The largest difference between its outputs and those of the model, for three
    random images, relative to the largest output.

  Raises:
    errors.UserError: if the file exists, cannot be written, or gives other
      outputs than the model.
  """
  path = storage.local_path(output)
  if path.suffix not in _WRITERS:
    endings = ' or '.join(_WRITERS)
    raise errors.UserError(f'output={output} must end in {endings}.')
  if os.path.lexists(path):
    raise errors.UserError(f'{path} exists. Delete it or name another.')
  function = program(weights)
  try:
    # More than 2 GB of weights take a second file, which must lie beside it.
    with files.replaced_file(path) as temporary:
      run = _WRITERS[path.suffix](function, weights, temporary)
      return _difference(run, function, weights.input_shape())
  except OSError as e:
    raise errors.UserError(f'{path} cannot be written: {e.strerror}.') from e


def _difference(
  run: Run, function: Function, shape: tuple[int, int, int]
) -> float:
  rng = np.random.default_rng(0)
  pixels = rng.uniform(0, 255, (3, *shape)).astype(np.float32)
  want = np.asarray(jax.jit(function)(pixels))
  got = run(pixels)
  difference = float('inf')
  if got.shape == want.shape:
    scale = max(np.abs(want).max(), 1e-12)
    difference = float(np.abs(got - want).max() / scale)
  if not difference < _TOLERANCE:
    raise errors.UserError(
      f'The outputs of the program, {got.shape}, differ from those of the model,'
      f' {want.shape}, by {difference:.2g} of the largest. Nothing was written.'
      f' Please report it, with the versions that `pip list` shows.'
    )
  return difference


def _write_stablehlo(
  function: Function, weights: weights_lib.Weights, path: pathlib.Path
) -> Run:
  (batch,) = jax_export.symbolic_shape('batch')
  shape = (batch, *weights.input_shape())
  pixels = jax.ShapeDtypeStruct(shape, jnp.float32)
  exported = jax_export.export(jax.jit(function), platforms=_PLATFORMS)(pixels)
  path.write_bytes(exported.serialize())
  again = jax_export.deserialize(bytearray(path.read_bytes()))
  return lambda pixels: np.asarray(again.call(pixels))


def _write_onnx(
  function: Function, weights: weights_lib.Weights, path: pathlib.Path
) -> Run:
  try:
    import jax2onnx
    import onnx
    import onnxruntime
  except ImportError as e:
    raise errors.UserError(
      f"{path.name} needs more: pip install 'vit_jax[onnx]'. A .stablehlo does not."
    ) from e
  # It warns about each symbolic dimension.
  logging.getLogger('onnx_ir').setLevel(logging.ERROR)
  try:
    model = jax2onnx.to_onnx(
      function,
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
  notes = {
    'labels': json.dumps(list(weights.class_names)),
    'image_shape': json.dumps(weights.image_shape),
  }
  onnx.helper.set_model_props(model, notes)
  onnx.save(model, path, save_as_external_data=model.ByteSize() > 2**31 - 2**20)
  session = onnxruntime.InferenceSession(path)
  return lambda pixels: session.run(None, {'pixels': pixels})[0]


_WRITERS = {'.onnx': _write_onnx, '.stablehlo': _write_stablehlo}
