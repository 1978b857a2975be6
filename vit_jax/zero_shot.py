"""Classifies images by labels in words, with a LiT model (arXiv:2111.07991).

python -m vit_jax.zero_shot --model=LiT-B16B --labels=cat,dog IMAGE...
python -m vit_jax.zero_shot --model=/tmp/lit/artifact --labels=labels.txt IMAGE...
"""

from collections.abc import Callable, Iterator, Sequence
import json
import pathlib

from absl import flags
import jax
from jaxtyping import Array, Float
import numpy as np

from vit_jax import artifact as artifact_lib
from vit_jax import checkpoint
from vit_jax import cli
from vit_jax import errors
from vit_jax import lit_weights
from vit_jax import models
from vit_jax.configs import models as model_configs
from vit_jax.data import augment
from vit_jax.data import text
from vit_jax.data import transforms

TEMPLATES = ('a photo of a {}.', 'a picture of a {}.', '{}')

Prediction = list[tuple[str, float]]


def load(
  model: str,
  *,
  vocabulary: str = '',
  config_name: str = '',
  pretrained_dir: str = 'checkpoints',
) -> artifact_lib.Artifact:
  """Returns a LiT model with the vocabulary of its texts.

  Args:
    model: the artifact of a contrastive run, the name of a released model,
      which is downloaded if it is absent, or an `.npz` file.
    vocabulary: file of the tokeniser; empty for that of the model.
    config_name: the released model that an `.npz` file is of; by default the
      name of the file.
    pretrained_dir: where released models are.

  Raises:
    errors.UserError: if something is missing or does not fit.
  """
  if pathlib.Path(model).is_dir():
    artifact = artifact_lib.load(model)
    if not artifact.vocabulary:
      raise errors.UserError(
        f'{model} is no LiT model: its {artifact_lib.CONFIG} names no'
        f' vocabulary. Use python -m vit_jax.predict.'
      )
    return artifact
  name = lit_weights.full_name(config_name or pathlib.Path(model).stem)
  if name is None:
    raise errors.UserError(
      f'{model} is no artifact folder and no released LiT model. Of an .npz file'
      f' say which model it is: --config_name=lit_b16b.'
    )
  config = model_configs.get_model_config(name).to_dict()
  vocabulary = lit_weights.find_vocabulary(config, vocabulary, pretrained_dir)
  path = lit_weights.find_weights(model, pretrained_dir)
  size = config['pp']['size']
  artifact = artifact_lib.Artifact(
    params=checkpoint.load(path),
    model=config,
    class_names=[],
    image_shape=(size, size, 3),
    vocabulary=vocabulary,
  )
  shapes = jax.eval_shape(
    lambda: models.init_params(artifact.module(), artifact.image_shape)
  )
  lit_weights.check_params(dict(artifact.params), shapes, str(path))
  return artifact


def classify(
  artifact: artifact_lib.Artifact,
  paths: Sequence[str],
  labels: Sequence[str],
  *,
  templates: Sequence[str] = TEMPLATES,
  crop: bool = False,
  top_k: int = 5,
  batch_size: int = 32,
) -> Iterator[Prediction]:
  """Yields, for each image, the labels that fit best, the best first.

  Args:
    artifact: of `load`.
    paths: image files.
    labels: what may be seen.
    templates: texts with {} for the label; their embeddings are averaged.
    crop: whether to keep the aspect ratio and take the centre.
    top_k: how many labels, at most.
    batch_size: images, or texts, at a time.

  Yields:
    [(label, probability)]: of all labels together 1, or of each alone where the
    model was trained with the sigmoid loss.

  Raises:
    errors.UserError: at a file that is missing or no image, labels or templates
      that are not right, or a vocabulary that is not the model's.
  """
  _check(labels, templates)
  module = artifact.module()
  params = jax.device_put(dict(artifact.params))
  ztxt = _embed_labels(artifact, params, labels, templates, batch_size)

  @jax.jit
  def probabilities(params, ztxt, images: Array) -> Float[Array, 'B K']:
    zimg, _, out = module.apply(
      {'params': params}, images=augment.normalize(images)
    )
    logits = models.similarities(zimg, ztxt, out)
    if artifact.loss == 'sigmoid':
      return jax.nn.sigmoid(logits)
    return jax.nn.softmax(logits)

  def classify_files(chunk: Sequence[str]) -> Float[Array, 'B K']:
    images = np.stack([_read(path, artifact, crop) for path in chunk])
    return probabilities(params, ztxt, images)

  for row in _in_batches(classify_files, paths, batch_size):
    best = np.argsort(-row, kind='stable')[:top_k]
    yield [(labels[i], float(row[i])) for i in best]


def _in_batches(
  function: Callable[[Sequence[str]], Array],
  items: Sequence[str],
  batch_size: int,
) -> Iterator[np.ndarray]:
  """Yields a row an item. Batches have one shape, so that one is compiled."""
  size = min(batch_size, len(items)) or 1
  for start in range(0, len(items), size):
    chunk = list(items[start : start + size])
    padding = chunk[-1:] * (size - len(chunk))
    yield from np.asarray(function(chunk + padding))[: len(chunk)]


def _check(labels: Sequence[str], templates: Sequence[str]) -> None:
  if not labels or not all(label.strip() for label in labels):
    raise errors.UserError(f'Labels are {list(labels)}; none may be empty.')
  wrong = [template for template in templates if '{}' not in template]
  if wrong or not templates:
    raise errors.UserError(
      f'Templates are {list(templates)}; each needs a {{}} for the label, as'
      f" 'a photo of a {{}}.' has."
    )


def _embed_labels(
  artifact: artifact_lib.Artifact,
  params: dict,
  labels: Sequence[str],
  templates: Sequence[str],
  batch_size: int,
) -> Float[np.ndarray, 'K D']:
  """Returns an embedding of length 1 a label, the mean over the templates."""
  module, pp = artifact.module(), artifact.model['pp']
  tokenizer = text.get_tokenizer(
    pp['tokenizer_name'], artifact.vocabulary, pp['max_len']
  )
  text.check_vocabulary(tokenizer, module.vocab_size, artifact.vocabulary)
  prompts = [t.replace('{}', label) for label in labels for t in templates]
  embed = jax.jit(
    lambda params, tokens: module.apply({'params': params}, tokens=tokens)[1]
  )
  rows = _in_batches(
    lambda chunk: embed(params, tokenizer(chunk)), prompts, batch_size
  )
  z = np.stack(list(rows)).reshape(len(labels), len(templates), -1).mean(axis=1)
  return z / np.linalg.norm(z, axis=1, keepdims=True)


def _read(
  path: str, artifact: artifact_lib.Artifact, crop: bool
) -> transforms.Image:
  height, width, channels = artifact.image_shape
  try:
    image = transforms.decode(
      pathlib.Path(path).read_bytes(), channels=channels, exif=artifact.exif
    )
  except OSError as e:
    raise errors.UserError(f'{path} cannot be read: {e.strerror}.') from e
  except ValueError as e:
    raise errors.UserError(f'{path} cannot be decoded: {e}.') from e
  return transforms.lit_image(image, (height, width), crop)


def read_list(text_or_file: str) -> list[str]:
  """Returns the lines of a file, or what stands between commas."""
  if pathlib.Path(text_or_file).is_file():
    lines = pathlib.Path(text_or_file).read_text(encoding='utf-8').splitlines()
  else:
    lines = text_or_file.split(',')
  return [line.strip() for line in lines if line.strip()]


def _define_flags() -> None:
  """Not on import: other command lines have flags of these names too."""
  flags.DEFINE_string(
    'model', None, 'Folder WORKDIR/artifact, a released model or an .npz file.'
  )
  flags.DEFINE_string(
    'labels', None, 'Labels with commas between, or a file with one a line.'
  )
  flags.DEFINE_multi_string(
    'templates', TEMPLATES, 'Text with {} for the label; may be repeated.'
  )
  flags.DEFINE_string(
    'vocabulary', '', 'Vocabulary file; empty: that of the model.'
  )
  flags.DEFINE_string(
    'config_name', '', 'Released model an .npz file is of: lit_b16b say.'
  )
  flags.DEFINE_string(
    'pretrained_dir', 'checkpoints', 'Where released models are, or go to.'
  )
  flags.DEFINE_bool(
    'crop', False, 'Keep the aspect ratio; look at the central square.'
  )
  flags.DEFINE_integer('top_k', 5, 'Labels shown.', lower_bound=1)
  flags.DEFINE_integer('batch', 32, 'Images at a time.', lower_bound=1)
  flags.DEFINE_bool('json', False, 'Print a JSON object an image.')
  flags.mark_flags_as_required(['model', 'labels'])


def main(argv: Sequence[str]) -> None:
  options, paths = flags.FLAGS, argv[1:]
  if not paths:
    raise errors.UserError('Name at least one image file.')
  artifact = load(
    options.model,
    vocabulary=options.vocabulary,
    config_name=options.config_name,
    pretrained_dir=options.pretrained_dir,
  )
  predictions = classify(
    artifact,
    paths,
    read_list(options.labels),
    templates=options.templates,
    crop=options.crop,
    top_k=options.top_k,
    batch_size=options.batch,
  )
  for path, prediction in zip(paths, predictions, strict=True):
    if options.json:
      rows = [{'class': name, 'probability': p} for name, p in prediction]
      print(json.dumps({'image': path, 'predictions': rows}))
    else:
      print(path)
      for name, p in prediction:
        print(f'  {p:7.2%}  {name}')


if __name__ == '__main__':
  _define_flags()
  cli.run(main)
