"""The vocabulary of a text tower, as a file beside its weights."""

import dataclasses
import pathlib

from vit_jax.configs import models as model_configs
from vit_jax.configs import spec
from vit_jax.data.texts import text
from vit_jax.runtime import storage
from vit_jax.weights import record as weights_lib


def name(model: model_configs.ModelConfig, path: str) -> str:
  """Returns the name, in an artifact, of a vocabulary that is read from `path`."""
  return _tokenizer(model).saved_as(path)


def names(model: model_configs.ModelConfig) -> list[str]:
  """Returns all names that `name` may return."""
  kind = _tokenizer(model)
  return [name for name in (kind.saved, kind.also_saved) if name]


def write(
  model: model_configs.ModelConfig, path: str, folder: storage.Path
) -> None:
  """Writes the vocabulary that is read from `path`, whole or not at all."""
  content = _tokenizer(model).content(path)
  storage.write_bytes(content, folder / name(model, path))


def find(
  weights: weights_lib.Weights, folder: pathlib.Path
) -> weights_lib.Weights:
  """Returns weights with the vocabulary that their folder has, if any."""
  if not spec.has_texts(weights.model):
    return weights
  tokenizer = weights.known_model()['pp']['tokenizer_name']
  return dataclasses.replace(weights, vocabulary=text.find(tokenizer, folder))


def _tokenizer(model: model_configs.ModelConfig) -> text.Kind:
  return text.TOKENIZERS[model['pp']['tokenizer_name']]
