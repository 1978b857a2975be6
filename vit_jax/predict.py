"""Classifies image files with the artifact of a run.

python -m vit_jax.predict --artifact=/tmp/digits/artifact IMAGE...
"""

from collections.abc import Iterator, Sequence
import json
import pathlib

from absl import flags
import jax
from jaxtyping import Array, Float
import numpy as np

from vit_jax import artifact as artifact_lib
from vit_jax import cli
from vit_jax import errors
from vit_jax.data import augment
from vit_jax.data import transforms

_ARTIFACT = flags.DEFINE_string('artifact', None, 'Folder WORKDIR/artifact.')
_TOP_K = flags.DEFINE_integer('top_k', 5, 'Classes shown.', lower_bound=1)
_BATCH = flags.DEFINE_integer('batch', 32, 'Images at a time.', lower_bound=1)
_JSON = flags.DEFINE_bool('json', False, 'Print a JSON object an image.')

Prediction = list[tuple[str, float]]


def predict(
  artifact: artifact_lib.Artifact,
  paths: Sequence[str],
  *,
  top_k: int = 5,
  batch_size: int = 32,
) -> Iterator[Prediction]:
  """Yields, for each image, its most probable classes, the best first.

  Images are prepared as evaluation prepares them.

  Args:
    artifact: the model.
    paths: image files.
    top_k: how many classes, at most.
    batch_size: images at a time.

  Yields:
    [(class name, probability)].

  Raises:
    errors.UserError: at a file that is missing or no image.
  """
  module = artifact.module()

  @jax.jit
  def probabilities(params, images: Array) -> Float[Array, 'B K']:
    x = augment.normalize(images)
    logits = module.apply({'params': params}, x, train=False)
    if artifact.loss == 'sigmoid':
      return jax.nn.sigmoid(logits)
    return jax.nn.softmax(logits)

  params = jax.device_put(artifact.params)
  batch_size = min(batch_size, len(paths))
  for start in range(0, len(paths), batch_size):
    chunk = paths[start : start + batch_size]
    images = np.stack([_read(path, artifact) for path in chunk])
    # One shape for all batches, so that the last is not compiled again.
    padding = (0, batch_size - len(chunk))
    images = np.pad(images, (padding, (0, 0), (0, 0), (0, 0)))
    result = np.asarray(probabilities(params, images))[: len(chunk)]
    for row in result:
      best = np.argsort(-row, kind='stable')[:top_k]
      yield [(artifact.class_names[i], float(row[i])) for i in best]


def _read(path: str, artifact: artifact_lib.Artifact) -> np.ndarray:
  height, width, channels = artifact.image_shape
  try:
    image = transforms.decode(
      pathlib.Path(path).read_bytes(), channels=channels, exif=artifact.exif
    )
  except OSError as e:
    raise errors.UserError(f'{path} cannot be read: {e.strerror}.') from e
  except ValueError as e:
    raise errors.UserError(f'{path} cannot be decoded: {e}.') from e
  return transforms.eval_image(image, (height, width))


def main(argv: Sequence[str]) -> None:
  paths = argv[1:]
  if not paths:
    raise errors.UserError('Name at least one image file.')
  artifact = artifact_lib.load(_ARTIFACT.value)
  predictions = predict(
    artifact, paths, top_k=_TOP_K.value, batch_size=_BATCH.value
  )
  for path, prediction in zip(paths, predictions, strict=True):
    if _JSON.value:
      rows = [{'class': name, 'probability': p} for name, p in prediction]
      print(json.dumps({'image': path, 'predictions': rows}))
    else:
      print(path)
      for name, p in prediction:
        print(f'  {p:7.2%}  {name}')


if __name__ == '__main__':
  flags.mark_flag_as_required('artifact')
  cli.run(main)
