"""What a run leaves: weights, config and labels in a folder other tools read."""

from collections.abc import Mapping, Sequence
import dataclasses
import json
import os
import pathlib
import shutil
from typing import Any

import flax.linen as nn
import flax.traverse_util
import jax
import numpy as np

import vit_jax
from vit_jax import checkpoint
from vit_jax import errors
from vit_jax import models

WEIGHTS, CONFIG, LABELS = 'model.npz', 'config.json', 'labels.txt'
VOCABULARIES = {  # By the name of the tokeniser.
  'bert': 'vocabulary.txt',
  'sentencepiece': 'vocabulary.model',
}
_FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Artifact:
  """A trained model.

  Attributes:
    params: as in the official checkpoints.
    model: arguments of `models.VisionTransformer` but for `num_classes`.
    class_names: in the order of the logits.
    image_shape: [H, W, C] of the input, which is in [-1, 1].
    exif: whether images are turned upright by their EXIF tag.
    loss: 'softmax' or 'sigmoid', which makes probabilities of logits.
    info: how it came about; for the reader only.
    vocabulary: file of the tokeniser of a LiT model; None for other models.
  """

  params: Mapping[str, Any]
  model: Mapping[str, Any]
  class_names: Sequence[str]
  image_shape: tuple[int, int, int]
  exif: bool = False
  loss: str = 'softmax'
  info: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  vocabulary: str | None = None

  def module(self) -> nn.Module:
    """Returns the model, without parameters."""
    if 'text_model' in self.model:  # Classes are what texts say.
      return models.from_config(self.model)
    return models.from_config(self.model, num_classes=len(self.class_names))


def save(directory: os.PathLike | str, artifact: Artifact) -> None:
  """Writes `model.npz`, `config.json`, `labels.txt`: all of them or none.

  One that was there stays until the new one is whole.
  """
  directory = pathlib.Path(directory)
  temporary = directory.with_name(directory.name + '.tmp')
  shutil.rmtree(temporary, ignore_errors=True)
  temporary.mkdir(parents=True)
  checkpoint.save(artifact.params, temporary / WEIGHTS)
  config = {
    'format': _FORMAT,
    'vit_jax': vit_jax.__version__,
    'model': dict(artifact.model),
    'num_classes': len(artifact.class_names),
    'image_shape': list(artifact.image_shape),
    'image_range': [-1, 1],
    'exif': artifact.exif,
    'loss': artifact.loss,
    'info': dict(artifact.info),
  }
  if artifact.vocabulary:
    tokenizer = artifact.model['pp']['tokenizer_name']
    config['vocabulary'] = VOCABULARIES[tokenizer]
    shutil.copyfile(artifact.vocabulary, temporary / VOCABULARIES[tokenizer])
  text = json.dumps(config, indent=2) + '\n'
  (temporary / CONFIG).write_text(text, encoding='utf-8')
  labels = ''.join(f'{name}\n' for name in artifact.class_names)
  (temporary / LABELS).write_text(labels, encoding='utf-8')
  old = directory.with_name(directory.name + '.old')
  shutil.rmtree(old, ignore_errors=True)
  if directory.exists():
    directory.rename(old)
  temporary.rename(directory)
  shutil.rmtree(old, ignore_errors=True)


def load(directory: os.PathLike | str) -> Artifact:
  """Reads what `save` wrote.

  Raises:
    errors.UserError: if a file is missing or damaged, or they do not agree.
  """
  directory = pathlib.Path(directory)
  config = _read_config(directory)
  try:
    labels = (directory / LABELS).read_text(encoding='utf-8').splitlines()
    artifact = Artifact(
      params=checkpoint.load(directory / WEIGHTS),
      model=config['model'],
      class_names=labels,
      image_shape=tuple(config['image_shape']),
      exif=config['exif'],
      loss=config['loss'],
      info=config['info'],
      vocabulary=_vocabulary(directory, config),
    )
    if len(labels) != config['num_classes']:
      raise errors.UserError(
        f'{directory / LABELS} has {len(labels)} lines, {CONFIG} says'
        f' {config["num_classes"]} classes.'
      )
  except (OSError, KeyError, TypeError, UnicodeDecodeError) as e:
    raise errors.UserError(
      f'{directory} is not a whole artifact: {type(e).__name__}: {e}.'
    ) from e
  _check_params(artifact, directory / WEIGHTS)
  return artifact


def _vocabulary(
  directory: pathlib.Path, config: Mapping[str, Any]
) -> str | None:
  if 'vocabulary' not in config:
    return None
  path = directory / config['vocabulary']
  path.stat()  # Raises if it is missing.
  return str(path)


def _check_params(artifact: Artifact, path: pathlib.Path) -> None:
  shapes = jax.eval_shape(
    lambda: models.init_params(artifact.module(), artifact.image_shape)
  )
  checkpoint.check_fit(
    flax.traverse_util.flatten_dict(dict(artifact.params), sep='/'),
    flax.traverse_util.flatten_dict(shapes, sep='/'),
    str(path),
    str(path.with_name(CONFIG)),
  )


def _read_config(directory: pathlib.Path) -> dict[str, Any]:
  path = directory / CONFIG
  try:
    config = json.loads(path.read_text(encoding='utf-8'))
    found = config['format']
  except OSError as e:
    raise errors.UserError(
      f'{directory} is no artifact: {path} cannot be read ({e.strerror}). A run'
      f' leaves one in its workdir, as WORKDIR/artifact.'
    ) from e
  except (ValueError, KeyError, TypeError) as e:
    raise errors.UserError(f'{path} is damaged: {e!r}.') from e
  if found != _FORMAT:
    raise errors.UserError(
      f'{path} has format {found}, this version reads {_FORMAT}.'
    )
  return config


def image_size_of(path: os.PathLike | str) -> tuple[int, int] | None:
  """Returns (height, width) that weights in an artifact were trained at.

  None if `path` is not the `model.npz` of an artifact.
  """
  path = pathlib.Path(path)
  if path.name != WEIGHTS or not path.with_name(CONFIG).is_file():
    return None
  return tuple(_read_config(path.parent)['image_shape'][:2])


def to_numpy(params: Mapping[str, Any]) -> dict[str, Any]:
  """Fetches parameters from the devices, from those of other hosts too."""
  if jax.process_count() > 1:
    from jax.experimental import multihost_utils  # Not needed on one host.

    return multihost_utils.process_allgather(params, tiled=True)
  return jax.tree.map(np.asarray, dict(params))
