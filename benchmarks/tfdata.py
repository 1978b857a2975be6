"""The same input in `tf.data`, as the official code writes it; for comparison.

Runs in a Python that has TensorFlow, which this library never imports, and
needs nothing else. The first line of its input is a JSON object of what
`input_pipeline.tfdata` says, answered by TensorFlow's version; each further line
is a number of seconds to run for, answered by a JSON object.
"""

import itertools
import json
import os
import pathlib
import sys
import time

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
os.environ['CUDA_VISIBLE_DEVICES'] = ''
import tensorflow as tf


def example(path, label, *, size, train, normalize):
  """Decodes, crops, resizes, mirrors."""
  image = tf.image.decode_jpeg(tf.io.read_file(path), channels=3)
  if train:
    begin, extent, _ = tf.image.sample_distorted_bounding_box(
      tf.shape(image),
      tf.zeros([0, 0, 4], tf.float32),
      area_range=(0.05, 1.0),
      min_object_covered=0,
      use_image_if_no_bounding_boxes=True,
    )
    image = tf.slice(image, begin, extent)
    image.set_shape([None, None, 3])
  image = tf.image.resize(image, [size, size])
  if train and tf.random.uniform([]) > 0.5:
    image = tf.image.flip_left_right(image)
  if normalize:
    return (image - 127.5) / 127.5, label
  return tf.cast(image, tf.uint8), label


def dataset(folder, split, *, batch, train, **how):
  """Returns batches: endless and shuffled in training, else one pass."""
  root = pathlib.Path(folder, split)
  files = sorted(str(path) for path in root.rglob('*.jpg'))
  names = [pathlib.Path(file).parent.name for file in files]
  classes = {name: i for i, name in enumerate(sorted(set(names)))}
  data = tf.data.Dataset.from_tensor_slices(
    (files, [classes[name] for name in names])
  )
  if train:
    data = data.repeat().shuffle(len(files))
  data = data.map(
    lambda path, label: example(path, label, train=train, **how),
    num_parallel_calls=tf.data.AUTOTUNE,
  )
  data = data.batch(batch, drop_remainder=train)
  return data.prefetch(1)  # More would be made before the clock starts.


def main():
  work = json.loads(sys.stdin.readline())
  data = dataset(**work['data'])
  print(tf.__version__, flush=True)
  batches = itertools.chain.from_iterable(itertools.repeat(data))
  for line in sys.stdin:
    for _ in range(work['untimed']):
      next(batches)
    count, start, cpu = 0, time.perf_counter(), time.process_time()
    while (seconds := time.perf_counter() - start) < float(line):
      images, _ = next(batches)
      count += len(images)
    answer = {
      'images_s': count / seconds,
      'cpu_us': 1e6 * (time.process_time() - cpu) / count,
      'dtype': images.dtype.name,
      'bytes_per_image': images[0].shape.num_elements() * images.dtype.size,
    }
    print(json.dumps(answer), flush=True)


if __name__ == '__main__':
  main()
