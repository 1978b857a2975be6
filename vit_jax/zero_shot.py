"""Classification by labels in words, with a model of images and texts."""

import collections
from collections.abc import Iterator, Sequence
import dataclasses
import functools
from typing import Any

from absl import logging
import jax
from jaxtyping import Array, Float
import numpy as np

from vit_jax import checkpoint
from vit_jax import models
from vit_jax.configs import spec
from vit_jax.data import inputs
from vit_jax.data import pipeline
from vit_jax.data.augmentation import augment
from vit_jax.data.augmentation import transforms
from vit_jax.data.texts import text
from vit_jax.evaluation import ranking
from vit_jax.runtime import errors
from vit_jax.weights import checks
from vit_jax.weights import npz
from vit_jax.weights import record as weights_lib
from vit_jax.weights import released

TEMPLATES = ('a photo of a {}.', 'a picture of a {}.', '{}')


def load(
  model: str,
  *,
  vocabulary: str = '',
  config_name: str = '',
  pretrained_dir: str = 'checkpoints',
) -> weights_lib.Weights:
  """Returns a model with two towers, with the vocabulary of its texts.

  Args:
    model: a file, folder, address or name, see `checkpoint.read`.
    vocabulary: file of the tokeniser; empty for that of the model.
    config_name: which released LiT an `.npz` file of another name is.
    pretrained_dir: folder of released models.

  Raises:
    errors.UserError: if a file is missing, does not fit or has no text tower.
  """
  path = released.find(released.lit_name(model) or model, pretrained_dir)
  weights = checkpoint.read(path)
  if name := released.lit_name(config_name):
    weights = npz.as_lit(weights, name)
    with weights_lib.naming(weights.source):
      checks.check(weights)
  if not spec.has_texts(weights.model):
    hint = '' if weights.model else ' If it is a LiT: config_name=lit_b16b.'
    raise errors.UserError(
      f'{model} has no text tower that is known here. Use vit-jax predict.{hint}'
    )
  if vocabulary or not weights.vocabulary:
    file = released.find_vocabulary(
      weights.known_model(), vocabulary, pretrained_dir
    )
    weights = dataclasses.replace(weights, vocabulary=file)
  return weights


def classify(
  weights: weights_lib.Weights,
  paths: Sequence[str],
  labels: Sequence[str],
  *,
  templates: Sequence[str] = TEMPLATES,
  crop: bool = False,
  top_k: int = 5,
  batch_size: int = 32,
  on_bad_image: str = 'raise',
) -> Iterator[tuple[str, ranking.Prediction]]:
  """Yields the path of each decoded image and its labels, the best first.

  Templates have {} for the label; their embeddings are averaged. Probabilities sum
  to 1 over all labels, except those of a model trained with the sigmoid loss.

  Args:
    weights: a model with two towers, from `load`.
    paths: image files or addresses.
    labels: texts to choose from.
    templates: texts with {}.
    crop: whether to keep the aspect ratio and take the centre.
    top_k: most labels to return.
    batch_size: images, or texts, to compute at a time.
    on_bad_image: 'raise' names an image that cannot be decoded, 'skip' omits it.

  Raises:
    errors.UserError: if an image, or with 'skip' each image, cannot be decoded, a
      label or template is empty, or the vocabulary is not the model's.
  """
  _check(labels, templates)
  pipeline.check_batch_size(batch_size)
  module, how = weights.module(), weights.preprocessing
  size = how.size
  assert size  # `load` checks it.
  params = jax.device_put(dict(weights.params))
  ztxt = _embed_labels(weights, params, labels, templates, batch_size)
  to_predictions = weights_lib.to_predictions(weights)

  @jax.jit
  def probabilities(params, ztxt, images: Array) -> Float[Array, 'B K']:
    pixels = augment.normalize(images, how.mean, how.std)
    outputs: Any = module.apply({'params': params}, images=pixels)
    zimg, _, out = outputs
    return to_predictions(models.similarities(zimg, ztxt, out))

  decoded = pipeline.Decoded(
    inputs.InputSource(paths, how.channels),
    exif=how.exif,
    channels=how.channels,
    is_float=None,
    expected=how,
    on_bad_image=on_bad_image,
  )
  batches = pipeline.eval_batches(
    decoded,
    transforms.LitImage(size, crop, how.resize_test, how.interpolation),
    batch_size=min(batch_size, max(1, len(paths))),
  )
  rows = pipeline.decoded_rows(
    batches, functools.partial(probabilities, params, ztxt)
  )
  choose = functools.partial(ranking.best, labels=labels, top_k=top_k)
  rows = ranking.at_least_one(rows, len(paths))
  return ranking.with_names(rows, paths, choose)


def _check(labels: Sequence[str], templates: Sequence[str]) -> None:
  if not labels or not all(label.strip() for label in labels):
    raise errors.UserError(f'Labels are {list(labels)}; none may be empty.')
  [(label, count)] = collections.Counter(labels).most_common(1)
  if count > 1:
    logging.warning('The label %r is given %d times.', label, count)
  wrong = [template for template in templates if '{}' not in template]
  if wrong or not templates:
    raise errors.UserError(
      f'Templates are {list(templates)}; each needs {{}} for the label, such as'
      f" 'a photo of a {{}}.'."
    )


def _embed_labels(
  weights: weights_lib.Weights,
  params: dict,
  labels: Sequence[str],
  templates: Sequence[str],
  batch_size: int,
) -> Float[np.ndarray, 'K D']:
  """Returns an embedding of length 1 for each label, the mean over templates."""
  module, vocabulary = weights.module(), weights.vocabulary
  # `load` checks both.
  assert isinstance(module, models.LitModel)
  assert vocabulary
  tokenizer = text.of_model(
    module.pp, module.text, module.vocab_size, vocabulary
  )
  prompts = [t.replace('{}', label) for label in labels for t in templates]
  embed = jax.jit(
    lambda params, tokens: module.apply({'params': params}, tokens=tokens)[1]
  )
  # Chunks have one shape, to compile once.
  size = min(batch_size, len(prompts))
  padded = prompts + prompts[-1:] * (-len(prompts) % size)
  chunks = [padded[i : i + size] for i in range(0, len(padded), size)]
  rows = [np.asarray(embed(params, tokenizer(chunk))) for chunk in chunks]
  z = np.concatenate(rows)[: len(prompts)]
  z = z.reshape(len(labels), len(templates), -1).mean(axis=1)
  return z / np.linalg.norm(z, axis=1, keepdims=True)
