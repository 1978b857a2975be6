"""Measures the loader alone: images/s, and bytes per image to the device.

python -m benchmarks.input_pipeline --folder=/path/to/imagenette --mode=train,eval

tf.data is added by `--against=tfdata --tf_python=/path/to/other/venv/bin/python`.

A folder is `{split}/{class}/{image}`. Each library does the same work, on the same
files: read, decode, in training crop and mirror at random, resize, batch.
`tfdata` is the official code's pipeline, float32; `tfdata_uint8` sends 8 bits per
value, like our training. With --raw the images, of one small size, are in memory and
are sent as they are, like `cifar10`; the step does the rest. Peers run in alternation,
each waiting in a process of its own while another is measured.
"""

from collections.abc import Callable, Iterator, Sequence
import contextlib
import dataclasses
import functools
import itertools
import json
import multiprocessing
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time
from typing import Any

from absl import app
from absl import flags
import numpy as np

from benchmarks import harness
from benchmarks import machine as machine_lib
from vit_jax.data import pipeline
from vit_jax.data import sources
from vit_jax.data.augmentation import transforms

# Batches of each process before a turn, so that none from an earlier turn is counted.
_UNTIMED = 6
_PACKAGES = ('grain', 'numpy', 'opencv-python-headless', 'simplejpeg')

# Runs for some seconds and returns its measurements.
Turn = Callable[[float], dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Work:
  """The work that each library does."""

  folder: str
  mode: str
  size: int

  @property
  def train(self) -> bool:
    """Whether to shuffle, crop and mirror."""
    return self.mode == 'train'


def define_flags() -> None:
  """Defines the flags of the work, which is all combinations of the lists."""
  flags.DEFINE_list('folder', None, 'Folders of images.', required=True)
  flags.DEFINE_string('split', 'train', 'Part of each that is read.')
  flags.DEFINE_list('mode', ['train'], 'Transforms: train, eval.')
  flags.DEFINE_list('size', ['224'], 'Image sides, pixels.')
  flags.DEFINE_integer('batch', 128, 'Images a batch.', 1)
  flags.DEFINE_integer('threads', 4, 'Threads of ours.', 1)
  flags.DEFINE_integer('workers', 0, 'Processes of ours.', 0)
  flags.DEFINE_bool('raw', False, 'Measure images in memory too.')
  flags.DEFINE_multi_enum('against', [], ['tfdata'], 'Peers.')
  flags.DEFINE_string('tf_python', sys.executable, 'One with TensorFlow.')
  flags.DEFINE_float('seconds', 3.0, 'Duration of a turn.', 0.0)
  flags.DEFINE_integer('turns', 5, 'Turns of each library; medians count.', 1)
  flags.DEFINE_string('json', None, 'File for the numbers.')


def ours(work: Work, data: pipeline.Decoded) -> Turn:
  """Returns turns of this library's loader."""
  size = (work.size, work.size)
  how = {
    'batch_size': flags.FLAGS.batch,
    'num_threads': flags.FLAGS.threads,
    'num_workers': flags.FLAGS.workers,
  }

  def passes() -> Iterator[pipeline.Batch]:
    if work.train:
      transform = transforms.TrainImage(size)
      yield from pipeline.train_batches(data, transform, seed=0, **how)
    while True:
      yield from pipeline.eval_batches(data, transforms.EvalImage(size), **how)

  batches = passes()

  def turn(seconds: float) -> dict[str, Any]:
    for _ in range(_UNTIMED * max(1, flags.FLAGS.workers)):
      next(batches)
    count, start, cpu = 0, time.perf_counter(), _processor_seconds()
    while (elapsed := time.perf_counter() - start) < seconds:
      batch = next(batches)
      count += int(np.sum(batch.get('mask', flags.FLAGS.batch)))
    image = batch['image'][0]
    return {
      'images_s': count / elapsed,
      'cpu_us': 1e6 * (_processor_seconds() - cpu) / count,
      'dtype': image.dtype.name,
      'bytes_per_image': image.nbytes,
    }

  return turn


def _processor_seconds() -> float:
  """Returns the processor time of this process and its workers."""
  seconds = time.process_time()
  for worker in multiprocessing.active_children():
    stat = pathlib.Path(f'/proc/{worker.pid}/stat').read_text()
    user, system = stat.rpartition(')')[2].split()[11:13]
    seconds += (int(user) + int(system)) / os.sysconf('SC_CLK_TCK')
  return seconds


def in_memory(source: sources.Source) -> sources.ArraySource:
  """Returns the images decoded, in memory like `cifar10`.

  Raises:
    app.UsageError: if they are not of one small size.
  """
  data = pipeline.Decoded(source)
  examples = [data[i] for i in range(len(data))]
  shapes = {example['image'].shape for example in examples}
  if len(shapes) == 1:
    images, labels = (
      np.stack([example[name] for example in examples])
      for name in ('image', 'label')
    )
    array = sources.ArraySource(images, labels, source.class_names)
    if pipeline.Decoded(array).is_raw:
      return array
  raise app.UsageError(
    f'--raw needs images of one small size; these have {len(shapes)} sizes, such as'
    f' {min(shapes)}.'
  )


@contextlib.contextmanager
def asking(command: Sequence[str]) -> Iterator[Callable[[str], str]]:
  """Yields a function that sends a line to a process and returns its answer."""
  with subprocess.Popen(
    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
  ) as process:

    def ask(line: str) -> str:
      answer = ''
      assert process.stdin
      assert process.stdout
      with contextlib.suppress(BrokenPipeError):
        process.stdin.write(line + '\n')
        process.stdin.flush()
        answer = process.stdout.readline()
      if not answer:
        raise app.UsageError(f'{" ".join(command)} failed; see above.')
      return answer

    yield ask


@contextlib.contextmanager
def tfdata(work: Work, *, normalize: bool) -> Iterator[Turn]:
  """Yields turns of `benchmarks/tfdata.py`, in a process of its own."""
  script = pathlib.Path(__file__).parent / 'tfdata.py'
  data = {
    'folder': work.folder,
    'split': flags.FLAGS.split,
    'size': work.size,
    'batch': flags.FLAGS.batch,
    'train': work.train,
    'normalize': normalize,
  }
  with asking([flags.FLAGS.tf_python, str(script)]) as ask:
    version = ask(json.dumps({'data': data, 'untimed': _UNTIMED})).strip()
    print(f'tfdata, normalize={normalize}: TensorFlow {version}')
    yield lambda seconds: json.loads(ask(str(seconds)))


def in_alternation(turns: dict[str, Turn]) -> dict[str, list[dict[str, Any]]]:
  """Returns the answers of each turn of each library, except the first.

  The order changes from turn to turn: workers of the last one still fill their queues.
  """
  answers: dict[str, list[dict[str, Any]]] = {name: [] for name in turns}
  order, rng = list(turns), random.Random(0)
  for _ in range(1 + flags.FLAGS.turns):
    rng.shuffle(order)
    for name in order:
      answers[name].append(turns[name](flags.FLAGS.seconds))
  return {name: rest for name, (_, *rest) in answers.items()}


def measure(work: Work) -> list[dict[str, Any]]:
  """Returns a row for each library."""
  source = sources.get_source(work.folder, flags.FLAGS.split)
  as_data = functools.partial(pipeline.Decoded, train=work.train)
  turns = {'vit_jax': ours(work, as_data(source))}
  if flags.FLAGS.raw:
    turns['vit_jax raw'] = ours(work, as_data(in_memory(source)))
  with contextlib.ExitStack() as stack:
    for name in flags.FLAGS.against:
      for kind, normalize in ((name, True), (f'{name}_uint8', False)):
        turns[kind] = stack.enter_context(tfdata(work, normalize=normalize))
    answers = in_alternation(turns)
  speeds = {
    name: np.array([turn['images_s'] for turn in said])
    for name, said in answers.items()
  }
  return [
    {
      'library': name,
      'data': os.path.basename(os.path.normpath(work.folder)),
      'mode': work.mode,
      'size': work.size,
      'batch': flags.FLAGS.batch,
      'images_s': float(np.median(speeds[name])),
      'slowest': speeds[name].min(),
      'fastest': speeds[name].max(),
      # Ratio of neighbouring turns, so that a slow minute cancels.
      'against_tfdata': float(np.median(speeds[name] / speeds['tfdata']))
      if 'tfdata' in speeds
      else None,
      # CPU time of all cores; other programs on the machine disturb it less.
      'cpu_us': statistics.median(turn['cpu_us'] for turn in said),
      'dtype': said[0]['dtype'],
      'bytes_per_image': said[0]['bytes_per_image'],
    }
    for name, said in answers.items()
  ]


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'Unexpected arguments: {argv[1:]}')
  rows = [
    row
    for folder, mode, size in itertools.product(
      flags.FLAGS.folder, flags.FLAGS.mode, flags.FLAGS.size
    )
    for row in measure(Work(folder, mode, int(size)))
  ]
  machine = machine_lib.describe(_PACKAGES)
  harness.report(rows, machine, flags.FLAGS.json)


if __name__ == '__main__':
  define_flags()
  app.run(main)
