"""Measures exported programs: size, accuracy and speed in several runtimes.

python -m benchmarks.exports --model=/tmp/run/artifact --dataset=/path/to/images

Needs pip install 'vit_jax[onnx]' openvino. int8 is calibrated with images of the split
'train'; accuracy is that of the first --images of 'test'. Every program runs in a process
of its own, in turns. Without --dataset, random images calibrate, and only the speed is
measured.
"""

from collections.abc import Iterator
import dataclasses
import functools
import itertools
import pathlib
import statistics
import tempfile
import time
from typing import Any

from absl import app
from absl import flags
import jax
import numpy as np

from benchmarks import harness
from benchmarks import machine as machine_lib
from benchmarks import turns
from vit_jax import checkpoint
from vit_jax import predictor as predictor_lib
from vit_jax.data import sources
from vit_jax.data import subsets
from vit_jax.weights import programs

_MODEL = flags.DEFINE_string('model', None, 'Trained model.', required=True)
_DATASET = flags.DEFINE_string('dataset', None, 'Labelled images.')
_IMAGES = flags.DEFINE_integer('images', 2000, 'Images that are evaluated.')
_BATCH = flags.DEFINE_list('batch', ['1', '8'], 'Images a call.')
_TURNS = flags.DEFINE_integer('turns', 5, 'Times that each is measured.')
_CALLS = flags.DEFINE_integer('calls', 10, 'Calls of a turn.')
_JSON = flags.DEFINE_string('json', None, 'File for the numbers.')

_CALIBRATION = 128
_PACKAGES = ('jax', 'jax2onnx', 'onnx', 'onnxruntime', 'openvino')

# Runtime, precision of the file, precision that the runtime is told.
_COMPARED = (
  ('jax', 'float32', ''),
  ('jax', 'bfloat16', ''),
  ('onnxruntime', 'float32', ''),
  ('onnxruntime', 'float16', ''),
  ('onnxruntime', 'int8', ''),
  ('openvino', 'float32', 'f32'),
  ('openvino', 'float32', 'bf16'),
  ('openvino', 'int8', 'f32'),
  ('openvino', 'int8', 'bf16'),
)


@dataclasses.dataclass(frozen=True)
class Case:
  """A file in a runtime.

  Attributes:
    runtime: 'jax', 'onnxruntime' or 'openvino'.
    precision: that of the numbers in the file.
    hint: precision of OpenVINO.
    batch: images a call.
    path: the file.
    images: .npz with pixels and labels, '' without a data set.
    shape: [H, W, C] of an image.
  """

  runtime: str
  precision: str
  hint: str
  batch: int
  path: str
  images: str
  shape: tuple[int, int, int]


class Program:
  """A case, loaded by its runtime."""

  def __init__(self, case: Case):
    start = time.perf_counter()
    self._run, self._case = _RUNTIMES[case.runtime](case), case
    rng = np.random.default_rng(0)
    shape = (case.batch, *case.shape)
    self._pixels = rng.uniform(0, 255, shape).astype(np.float32)
    self.run()
    self._load_s = time.perf_counter() - start

  def run(self) -> None:
    self._run(self._pixels)

  def seconds(self, steps: int) -> float:
    start = time.perf_counter()
    for _ in range(steps):
      self.run()
    return (time.perf_counter() - start) / steps

  def facts(self) -> dict[str, Any]:
    return {'load_s': self._load_s, 'accuracy': self._accuracy()}

  def _accuracy(self) -> float | None:
    """Returns the share of images whose class is right."""
    if not self._case.images:
      return None
    data = np.load(self._case.images)
    pixels, labels, size = data['pixels'], data['labels'], self._case.batch
    count = len(labels) // size * size
    found = [
      self._run(pixels[i : i + size].astype(np.float32)).argmax(axis=-1)
      for i in range(0, count, size)
    ]
    return float(np.mean(np.concatenate(found) == labels[:count]))


def _jax(case: Case) -> programs.Run:
  exported = jax.export.deserialize(
    bytearray(pathlib.Path(case.path).read_bytes())
  )
  call = jax.jit(exported.call)
  return lambda pixels: np.asarray(call(pixels))


def _onnxruntime(case: Case) -> programs.Run:
  import onnxruntime

  session = onnxruntime.InferenceSession(case.path)
  return lambda pixels: session.run(None, {'pixels': pixels})[0]


def _openvino(case: Case) -> programs.Run:
  import openvino

  hints = {'INFERENCE_PRECISION_HINT': case.hint}
  compiled = openvino.Core().compile_model(case.path, 'CPU', hints)
  return lambda pixels: compiled(pixels)[0]


_RUNTIMES = {'jax': _jax, 'onnxruntime': _onnxruntime, 'openvino': _openvino}


def _sample(
  model: predictor_lib.Predictor, split: str, count: int
) -> tuple[np.ndarray, np.ndarray]:
  """Returns pixels from 0 to 255 and labels of some images, always the same ones."""
  source = sources.get_source(_DATASET.value, split)
  rng = np.random.default_rng(0)
  chosen = rng.permutation(len(source))[:count]
  subset = subsets.Subset(source, chosen)
  pixels = [255 * x for _, x in model.prepared(subset)]
  return np.stack(pixels).astype(np.float32), subset.labels()


def _calibration(
  model: predictor_lib.Predictor, size: int = 8
) -> Iterator[programs.Pixels]:
  if _DATASET.value:
    pixels, _ = _sample(model, 'train', _CALIBRATION)
  else:
    rng = np.random.default_rng(0)
    shape = (4 * size, *model.image_shape)
    pixels = rng.uniform(0, 255, shape).astype(np.float32)
  yield from (pixels[i : i + size] for i in range(0, len(pixels), size))


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'Unexpected arguments: {argv[1:]}')
  model = predictor_lib.Predictor(checkpoint.read(_MODEL.value))
  before = machine_lib.describe(_PACKAGES)
  with tempfile.TemporaryDirectory() as name:
    folder, images = pathlib.Path(name), ''
    if _DATASET.value:
      pixels, labels = _sample(model, 'test', _IMAGES.value)
      images = str(folder / 'images.npz')
      np.savez(images, pixels=pixels.astype(np.uint8), labels=labels)
    write = functools.cache(functools.partial(_written, model, folder))
    cases = [
      Case(
        runtime, precision, hint, int(batch), path, images, model.image_shape
      )
      for batch, (runtime, precision, hint) in itertools.product(
        _BATCH.value, _COMPARED
      )
      for path in [write(runtime, precision)]
    ]
    found = turns.measure(Program, cases, _TURNS.value, _CALLS.value)
    rows = [_row(*pair) for pair in zip(cases, found, strict=True)]
  harness.report(rows, {**before, 'model': repr(model)}, _JSON.value)


def _written(
  model: predictor_lib.Predictor,
  folder: pathlib.Path,
  runtime: str,
  precision: str,
) -> str:
  """Returns the file of a model in a precision, which it writes."""
  suffix = '.stablehlo' if runtime == 'jax' else '.onnx'
  path = folder / f'{precision}{suffix}'
  if not path.exists():
    programs.export(
      model.weights,
      str(path),
      precision=precision,
      calibration=_calibration(model),
    )
  return str(path)


def _row(case: Case, found: dict[str, Any]) -> dict[str, Any]:
  seconds = found.pop('seconds')
  return {
    'runtime': case.runtime,
    'file': case.precision,
    'told': case.hint,
    'batch': case.batch,
    'mib': pathlib.Path(case.path).stat().st_size / 2**20,
    **found,
    'images_s': case.batch / statistics.median(seconds),
    'slowest': case.batch / max(seconds),
    'fastest': case.batch / min(seconds),
  }


if __name__ == '__main__':
  harness.start()
  app.run(main)
