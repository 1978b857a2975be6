"""ONNX models with fewer bits: int8 or float16."""

from collections.abc import Iterable, Iterator
import logging
import pathlib
import tempfile
from typing import Any

from jaxtyping import Float
import numpy as np

_MAX_BYTES = 2**31 - 2**20  # Protocol buffers end at 2 GiB.

# Sums of float16 numbers lose digits, and squares of large ones overflow.
_FLOAT32_OPERATORS = ('ReduceMean', 'ReduceSum', 'Pow', 'Softmax')


class _Calibration:
  """Batches of pixels in the form that ONNX Runtime reads them."""

  def __init__(self, batches: Iterable[Float[np.ndarray, 'B H W C']]):
    self._batches: Iterator[Float[np.ndarray, 'B H W C']] = iter(batches)

  def get_next(self) -> dict[str, np.ndarray] | None:
    """Returns the inputs of the next call, None at the end."""
    batch = next(self._batches, None)
    return None if batch is None else {'pixels': batch}


def is_large(model: Any) -> bool:
  """Whether the arrays of an `onnx.ModelProto` must be in a file beside it."""
  return model.ByteSize() > _MAX_BYTES


def write_int8(
  model: Any,
  path: pathlib.Path,
  calibration: Iterable[Float[np.ndarray, 'B H W C']],
) -> None:
  """Writes an ONNX file whose products with parameters are of int8.

  Both factors are int8: kernels with a scale for each output channel, activations
  with one scale, which the range of `calibration`, pixels from 0 to 255, determines.
  Sums, attention, LayerNorm and everything else stay float32.

  Args:
    model: `onnx.ModelProto` in float32.
    path: the new file; its folder also gets temporary ones.
    calibration: batches of pixels.
  """
  import onnx
  from onnxruntime import quantization
  from onnxruntime.quantization import shape_inference

  large = is_large(model)
  logging.getLogger().addFilter(_without_advice)
  try:
    with tempfile.TemporaryDirectory(dir=path.parent) as temporary:
      plain, folded = (
        pathlib.Path(temporary) / x for x in ('0.onnx', '1.onnx')
      )
      onnx.save(model, plain, save_as_external_data=large)
      # Kernels that are reshaped become constants, which alone are quantised.
      shape_inference.quant_pre_process(
        plain, folded, skip_symbolic_shape=True, save_as_external_data=large
      )
      quantization.quantize_static(
        folded,
        path,
        _Calibration(calibration),
        quant_format=quantization.QuantFormat.QDQ,
        op_types_to_quantize=['MatMul', 'Gemm'],
        per_channel=True,
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
        # Processors without VNNI add pairs of products in 16 bits.
        reduce_range=True,
        use_external_data_format=large,
        extra_options={'MatMulConstBOnly': True},
      )
  finally:
    logging.getLogger().removeFilter(_without_advice)


def _without_advice(record: logging.LogRecord) -> bool:
  return 'pre-processing' not in record.getMessage()


def to_float16(model: Any) -> Any:
  """Returns an ONNX model whose parameters and activations are float16.

  Inputs and outputs stay float32, and so do means, sums and softmax.
  """
  from onnxruntime.transformers import float16

  return float16.convert_float_to_float16(
    model,
    keep_io_types=True,
    op_block_list=[*float16.DEFAULT_OP_BLOCK_LIST, *_FLOAT32_OPERATORS],
  )
