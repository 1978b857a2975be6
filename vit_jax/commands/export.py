"""Writes a model as one program with its weights, for other runtimes.

vit-jax export --model=/tmp/run/artifact --output=model.onnx
vit-jax export --model=/tmp/run/artifact --output=small.onnx \
  --quantize=int8 --dataset=/path/to/images

A .onnx needs pip install 'vit_jax[onnx]' to write and runs in ONNX Runtime, OpenVINO and
other readers of ONNX; its metadata has the labels. A .stablehlo is read by
`jax.export.deserialize(data).call(pixels)` on CPUs, GPUs and TPUs, and by other readers
of StableHLO. Both take a batch of any size, float32 pixels [B, H, W, C] from 0 to 255,
and return float32 logits [B, K], or features if the model has no head. After writing,
the program is run once and compared with the model.

--quantize=int8 or float16 makes a .onnx smaller, bfloat16 a .stablehlo. With --dataset,
model and program are evaluated on its --split, and a program that is worse by more than
--tolerance is not written. int8 needs --dataset: images of --calibration_split give
the range of each activation.
"""

from collections.abc import Iterator, Sequence
import functools
import itertools

from absl import flags
import jax.numpy as jnp
import numpy as np

from vit_jax import predictor as predictor_lib
from vit_jax.commands import cli
from vit_jax.commands import dataset_flags
from vit_jax.commands import predictor_flags
from vit_jax.data import sources
from vit_jax.data import subsets
from vit_jax.evaluation import labelled
from vit_jax.evaluation import ranking
from vit_jax.runtime import errors
from vit_jax.weights import programs
from vit_jax.weights import record as weights_lib

_BATCH = 8  # Images that a program gets at a time.


def define_flags() -> None:
  """Defines the flags of `vit-jax export`."""
  predictor_flags.define_weights_flags()
  predictor_flags.define_image_flags()
  flags.DEFINE_string(
    'output', None, 'New file, .onnx or .stablehlo.', required=True
  )
  precisions = dict.fromkeys(itertools.chain(*programs.PRECISIONS.values()))
  flags.DEFINE_enum(
    'quantize', 'float32', list(precisions), 'Precision of the program.'
  )
  flags.DEFINE_string(
    'dataset', None, 'Folder or name of labelled images, to evaluate with.'
  )
  flags.DEFINE_string('split', 'test', 'Split to evaluate.')
  flags.DEFINE_string(
    'calibration_split', 'train', 'Split that gives the ranges of int8.'
  )
  flags.DEFINE_integer(
    'calibration_images', 128, 'Most images for these ranges.', lower_bound=1
  )
  flags.DEFINE_float(
    'tolerance',
    0.01,
    'Largest allowed loss of accuracy or mAP; for mean absolute errors, largest'
    ' relative increase.',
    lower_bound=0.0,
  )
  dataset_flags.define_flags()


def _pixels(
  predictor: predictor_lib.Predictor, images: sources.Source
) -> Iterator[tuple[list[int], programs.Pixels]]:
  """Yields batches of decoded images: their indices, and pixels from 0 to 255."""
  rows = predictor.prepared(images)
  while batch := list(itertools.islice(rows, _BATCH)):
    places, pixels = zip(*batch, strict=True)
    yield list(places), 255 * np.stack(pixels)


def _outputs(
  run: programs.Run,
  predictor: predictor_lib.Predictor,
  images: sources.Source,
) -> ranking.Rows:
  """Yields what `Predictor.probabilities` does, by a program."""
  to_predictions = weights_lib.to_predictions(predictor.weights)
  for places, pixels in _pixels(predictor, images):
    yield from zip(
      places, np.asarray(to_predictions(jnp.asarray(run(pixels)))), strict=True
    )


def _compare(
  predictor: predictor_lib.Predictor,
  source: sources.LabelledSource,
  run: programs.Run,
) -> None:
  """Prints the score of a model and its program; raises if that is much worse."""
  tolerance, weights = flags.FLAGS.tolerance, predictor.weights
  before, after = (
    labelled.first_score(rows, weights, source)
    for rows in (
      predictor.probabilities(source),
      _outputs(run, predictor, source),
    )
  )
  print(f'{before.name} of the model: {before.value:.4f}')
  print(f'{after.name} of the program: {after.value:.4f}')
  if after.worse_than(before) > tolerance:
    raise errors.UserError(
      f'{flags.FLAGS.output} was not written: its {after.name} is {after.value:.4f},'
      f' that of the model {before.value:.4f}, worse by more than'
      f' tolerance={tolerance:g}. Try another quantize, or more'
      f' calibration_images.'
    )


def _opened(
  weights: weights_lib.Weights, calibrates: bool
) -> sources.LabelledSource:
  """Returns the images that calibrate, or those that are evaluated."""
  options, columns = flags.FLAGS, dataset_flags.columns(weights)
  names = sources.default_splits(
    options.dataset, options.calibration_split, options.split, columns
  )
  source = sources.get_source(
    options.dataset,
    names[0 if calibrates else 1],
    data_dir=options.tfds_data_dir,
    columns=columns,
  )
  labelled.check_task(weights, source)
  return source


def _calibration(
  predictor: predictor_lib.Predictor, source: sources.LabelledSource
) -> Iterator[programs.Pixels]:
  """Yields batches of some images, always the same ones."""
  count = min(len(source), flags.FLAGS.calibration_images)
  chosen = np.random.default_rng(0).choice(len(source), count, replace=False)
  subset = subsets.Subset(source, np.sort(chosen))
  return (pixels for _, pixels in _pixels(predictor, subset))


def _export(weights: weights_lib.Weights) -> float:
  """Writes the program; returns the largest difference of its outputs."""
  options = flags.FLAGS
  batches: Iterator[programs.Pixels] = iter(())
  write = functools.partial(
    programs.export, weights, options.output, precision=options.quantize
  )
  if not options.dataset:
    return write()
  weights_lib.check_can_predict(weights)
  predictor = predictor_flags.from_weights(weights)
  if options.quantize == 'int8':
    batches = _calibration(predictor, _opened(weights, calibrates=True))
  test = _opened(weights, calibrates=False)
  return write(
    calibration=batches, check=functools.partial(_compare, predictor, test)
  )


def main(argv: Sequence[str]) -> None:
  cli.refuse_words(argv)
  options = flags.FLAGS
  programs.check_output(options.output, options.quantize)
  for name in ('split', 'tolerance', 'calibration_split', 'calibration_images'):
    if options[name].present and not options.dataset:
      raise errors.UserError(f'--{name} is for --dataset, which is not given.')
  if options.quantize == 'int8' and not options.dataset:
    raise errors.UserError(
      'quantize=int8 needs dataset=FOLDER: its images give the range of each'
      ' activation, and the accuracy before and after.'
    )
  weights = predictor_flags.weights_from_flags().with_temperature_in_head()
  difference = _export(weights)
  print(f'{options.output}: {weights_lib.describe(weights)}.')
  print(f'Its outputs differ from the model by {difference:.1g} at most.')
