"""Classifies image files with the artifact of a run, or any other weights.

python -m vit_jax.predict --artifact=/tmp/digits/artifact IMAGE...
"""

from collections.abc import Iterable, Iterator, Sequence
import dataclasses
import json
import pathlib

from absl import flags
import jax
from jaxtyping import Array, Float
import numpy as np

from vit_jax import checkpoint
from vit_jax import cli
from vit_jax import errors
from vit_jax import inference
from vit_jax import weights as weights_lib
from vit_jax.data import augment
from vit_jax.data import transforms

Prediction = list[tuple[str, float]]


def predict(
  weights: weights_lib.Weights,
  paths: Sequence[str],
  *,
  top_k: int = 5,
  batch_size: int = 32,
) -> Iterator[Prediction]:
  """Yields, for each image, its most probable classes, the best first.

  Images are prepared as evaluation prepares them.

  Args:
    weights: of `checkpoint.read`.
    paths: image files.
    top_k: how many classes, at most.
    batch_size: images at a time.

  Yields:
    [(class name, probability)].

  Raises:
    errors.UserError: if these weights cannot predict, or at a file that is
      missing or no image.
  """
  module = weights.module()
  _check_can_predict(weights)

  @jax.jit
  def probabilities(params, images: Array) -> Float[Array, 'B K']:
    x = augment.normalize(images, weights.mean, weights.std)
    logits = inference.apply(module, params, x)
    if weights.loss == 'sigmoid':
      return jax.nn.sigmoid(logits)
    return jax.nn.softmax(logits)

  params = inference.cast_weights(weights.params, module.dtype)
  params = jax.device_put(dict(params))
  batch_size, size = min(batch_size, len(paths)), weights.image_shape[:2]
  for start in range(0, len(paths), batch_size):
    chunk = paths[start : start + batch_size]
    images = [read_image(path, weights) for path in chunk]
    images = transforms.stack(
      [transforms.eval_image(x, size, weights.resize_test) for x in images]
    )
    # One shape for all batches, so that the last is not compiled again.
    padding = (0, batch_size - len(chunk))
    images = np.pad(images, (padding, (0, 0), (0, 0), (0, 0)))
    result = np.asarray(probabilities(params, images))[: len(chunk)]
    for row in result:
      best = np.argsort(-row, kind='stable')[:top_k]
      yield [(weights.class_names[i], float(row[i])) for i in best]


def _check_can_predict(weights: weights_lib.Weights) -> None:
  if 'text_model' in weights.model:
    raise errors.UserError(
      'These weights compare images with texts: use python -m'
      ' vit_jax.zero_shot --labels=...'
    )
  if not weights.class_names:
    raise errors.UserError(
      'These weights have no head: they give features, no classes. Fine-tune'
      ' them with --config.pretrained.'
    )
  if weights_lib.has_zero_head(weights.params):
    raise errors.UserError(
      'The head of these weights is all zeros, so that every class would be as'
      ' probable as any other: the ImageNet-21k files of the paper were'
      ' published so. They are good to fine-tune from; to predict, take one'
      ' whose head is `ok` in python -m vit_jax.models_list.'
    )
  if weights.image_shape is None:
    raise errors.UserError(
      'These weights do not tell the size of their images: their patches are no'
      ' square grid. Predict with the artifact of a run.'
    )


def _with_labels(
  weights: weights_lib.Weights, path: str
) -> weights_lib.Weights:
  try:
    names = pathlib.Path(path).read_text(encoding='utf-8').splitlines()
  except (OSError, UnicodeDecodeError) as e:
    raise errors.UserError(f'--labels={path} cannot be read: {e}.') from e
  if len(names) != len(weights.class_names):
    raise errors.UserError(
      f'--labels={path} has {len(names)} lines, the model'
      f' {len(weights.class_names)} classes.'
    )
  return dataclasses.replace(weights, class_names=names)


def read_image(path: str, weights: weights_lib.Weights) -> transforms.Image:
  """Decodes an image file as the weights want it.

  Raises:
    errors.UserError: if it is missing or no image.
  """
  try:
    return transforms.decode(
      pathlib.Path(path).read_bytes(),
      channels=weights.image_shape[2],
      exif=weights.exif,
    )
  except OSError as e:
    raise errors.UserError(f'{path} cannot be read: {e.strerror}.') from e
  except ValueError as e:
    raise errors.UserError(f'{path} cannot be decoded: {e}.') from e


def show(
  paths: Sequence[str], predictions: Iterable[Prediction], *, as_json: bool
) -> None:
  """Prints predictions as they come, for people or as JSON lines."""
  for path, prediction in zip(paths, predictions, strict=True):
    if as_json:
      rows = [{'class': name, 'probability': p} for name, p in prediction]
      print(json.dumps({'image': path, 'predictions': rows}))
    else:
      print(path)
      for name, p in prediction:
        print(f'  {p:7.2%}  {name}')


def define_flags() -> None:
  """Not on import: other command lines have flags of these names too."""
  flags.DEFINE_integer('top_k', 5, 'Classes shown.', lower_bound=1)
  flags.DEFINE_integer('batch', 32, 'Images at a time.', lower_bound=1)
  flags.DEFINE_bool('json', False, 'Print a JSON object an image.')


def main(argv: Sequence[str]) -> None:
  options, paths = flags.FLAGS, argv[1:]
  if not paths:
    raise errors.UserError('Name at least one image file.')
  weights = checkpoint.read(options.artifact)
  if options.labels:
    weights = _with_labels(weights, options.labels)
  predictions = predict(
    weights, paths, top_k=options.top_k, batch_size=options.batch
  )
  show(paths, predictions, as_json=options.json)


if __name__ == '__main__':
  define_flags()
  flags.DEFINE_string(
    'artifact',
    None,
    'WORKDIR/artifact, or whatever else config.pretrained takes.',
    required=True,
  )
  flags.DEFINE_string(
    'labels', None, 'File with the names of the classes, one a line.'
  )
  cli.run(main)
