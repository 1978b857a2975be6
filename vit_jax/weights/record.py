"""A model's parameters and all that is needed to run them."""

from collections.abc import Mapping, Sequence
import dataclasses
import math
from typing import Any

import flax.linen as nn
import flax.traverse_util
import jax
import numpy as np

from vit_jax import models
from vit_jax.configs import models as model_configs
from vit_jax.configs import spec
from vit_jax.data import preprocessing as preprocessing_lib
from vit_jax.runtime import errors

Params = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Weights:
  """What a file or a folder of weights holds.

  Attributes:
    params: nested, with the names of the official code.
    model: arguments of the model's class but for `num_classes`, as in
      `configs.models`; None where the arrays do not tell.
    class_names: in the order of the logits; empty without a head.
    preprocessing: how an image becomes the model's input.
    loss: 'softmax' or 'sigmoid', which makes probabilities of logits.
    info: how it came about; for the reader only.
    vocabulary: file of the tokeniser of a LiT model; None for other models.
  """

  params: Params
  model: Mapping[str, Any] | None
  class_names: Sequence[str] = ()
  preprocessing: preprocessing_lib.Preprocessing = dataclasses.field(
    default_factory=preprocessing_lib.Preprocessing
  )
  loss: str = 'softmax'
  info: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  vocabulary: str | None = None

  @property
  def image_shape(self) -> tuple[int, int, int] | None:
    """[H, W, C] of the input; None where nothing tells."""
    return self.preprocessing.image_shape

  @property
  def spec(self) -> spec.ModelSpec:
    """What the model is; raises what `module` does."""
    return spec.of(self._known_model())

  def module(self) -> nn.Module:
    """Returns the model, without parameters.

    Raises:
      errors.UserError: if the weights do not tell which it is.
    """
    model = self._known_model()
    if spec.has_texts(model):  # Its classes are what texts say.
      return models.from_config(model)
    return models.from_config(model, num_classes=len(self.class_names) or None)

  def _known_model(self) -> Mapping[str, Any]:
    if self.model is None:
      raise errors.UserError(
        'These weights do not tell which model they are of: their arrays are'
        f' {", ".join(sorted(flatten(self.params))[:3])}, ... To fine-tune them,'
        ' set config.model.'
      )
    return self.model


_VOCABULARIES = {  # By the name of the tokeniser.
  'bert': 'vocabulary.txt',
  'sentencepiece': 'vocabulary.model',
}


def vocabulary_name(model: model_configs.ModelConfig) -> str:
  """Returns how the vocabulary of a LiT model is called beside its weights."""
  return _VOCABULARIES[model['pp']['tokenizer_name']]


def flatten(params: Params) -> dict[str, Any]:
  """Returns {'module/name': array}."""
  return flax.traverse_util.flatten_dict(dict(params), sep='/')


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
  """Undoes `flatten`."""
  return flax.traverse_util.unflatten_dict(dict(flat), sep='/')


def numbered_classes(params: Params) -> list[str]:
  """Returns 'class 0', 'class 1', ..., as many as the head has."""
  head = params.get('head')
  return [f'class {i}' for i in range(len(head['bias']))] if head else []


def has_zero_head(params: Params) -> bool:
  """Whether the head is all zeros, as in ImageNet-21k files of the paper."""
  return 'head' in params and not any(
    np.any(x) for x in params['head'].values()
  )


def check_vision(weights: Weights) -> None:
  """Raises `errors.UserError` unless the weights are of images of a size."""
  if spec.has_texts(weights.model):
    raise errors.UserError(
      'These weights compare images with texts: use'
      ' vit-jax zero_shot --labels=...'
    )
  weights.module()  # Raises if the model is not known.
  if weights.image_shape is None:
    raise errors.UserError(
      'These weights do not tell the size of their images: their patches are no'
      ' square grid. Give it with image_size=HEIGHT,WIDTH.'
    )


def check_can_predict(weights: Weights) -> None:
  """Raises `errors.UserError` unless the weights have a head that was trained."""
  if not weights.class_names:
    raise errors.UserError(
      'These weights have no head: they give features, no classes. Fine-tune'
      ' them with config.pretrained.'
    )
  if has_zero_head(weights.params):
    raise errors.UserError(
      'The head of these weights is all zeros, so that every class would be as'
      ' probable as any other: the ImageNet-21k files of the paper were'
      ' published so. They are good to fine-tune from; to predict, take one'
      ' whose head is `ok` in vit-jax models.'
    )


def first_kernel(params: Params) -> Any | None:
  """Returns the kernel that sees the image; None if there is none."""
  tower = flatten(params.get('img', params))  # The image tower of LiT models.
  return next((tower[n] for n in spec.FIRST_KERNELS if n in tower), None)


def num_channels(params: Params) -> int:
  """Returns how many channels the first kernel takes."""
  return first_kernel(params).shape[2]


def grid(weights: Weights) -> tuple[int, int]:
  """Returns (rows, columns) of the patches of an image; its size is known."""
  return weights.spec.grid(weights.image_shape[:2])


def describe(weights: Weights) -> str:
  """Returns one line: name of the model, parameters, classes, image size."""
  name = (weights.model or {}).get('model_name')
  count = sum(np.size(x) for x in jax.tree.leaves(dict(weights.params)))
  shape = weights.image_shape
  size = f'{shape[0]}x{shape[1]} pixels' if shape else 'unknown image size'
  facts = f'{count:,} parameters, {len(weights.class_names)} classes, {size}'
  return f'{name}: {facts}' if name else facts


def check(
  weights: Weights, path: str, names: Mapping[str, str] | None = None
) -> None:
  """Raises `errors.UserError` unless the parameters fit the model.

  Args:
    weights: what to check; passes if the model or the image size is unknown.
    path: where they are from, for the message.
    names: how the file calls its arrays, by their official names.
  """
  if weights.model is None or weights.image_shape is None:
    return
  shape = weights.image_shape
  _check_input(weights, path)
  try:
    module = weights.module()
    want = models.abstract_params(module, shape)
  except _WRONG_MODEL as e:
    reason = str(e).strip().split('\n')[0]
    raise errors.UserError(
      f'{path} does not make a model: {reason} Its shapes or its config.json'
      f' are damaged, or of another architecture.'
    ) from e
  check_fit(flatten(weights.params), flatten(want), path, 'its model', names)


# What modules raise at sizes that are of the wrong type, or make no sense.
_WRONG_MODEL = (
  AssertionError,
  AttributeError,
  KeyError,
  IndexError,
  TypeError,
  ValueError,
  ZeroDivisionError,
)


def _check_input(weights: Weights, path: str) -> None:
  channels = weights.image_shape[2]
  for name in ('mean', 'std'):
    values = getattr(weights.preprocessing, name)
    is_right = len(values) in (1, channels) and all(
      isinstance(v, int | float)
      and math.isfinite(v)
      and (name == 'mean' or v > 0)
      for v in values
    )
    if not is_right:
      raise errors.UserError(
        f'{path} has the {name} {tuple(values)} of pixels: it needs 1 number or'
        f' {channels}, as many as channels, and those of std greater than 0.'
      )
  wrong = [n for n in weights.class_names if not isinstance(n, str)]
  if wrong:
    raise errors.UserError(
      f'{path} has the label {wrong[0]!r}, which is not text.'
    )


def check_fit(
  have: Mapping[str, Any],
  want: Mapping[str, Any],
  path: str,
  model: str,
  names: Mapping[str, str] | None = None,
) -> None:
  """Raises `errors.UserError` unless flat names and shapes are the same."""
  rows = []
  for key in sorted(have.keys() | want.keys()):
    name = f'{key} ({names[key]})' if names and key in names else key
    if key not in have:
      rows.append(f'  {name}: missing, the model wants {want[key].shape}')
    elif key not in want:
      rows.append(f'  {name}: {have[key].shape}, the model has no such array')
    elif have[key].shape != want[key].shape:
      rows.append(
        f'  {name}: {have[key].shape}, the model wants {want[key].shape}'
      )
  if rows:
    raise errors.UserError(
      f'{path} does not fit {model}: {len(rows)} arrays differ'
      f' ({len(have)} in the file, {len(want)} in the model).\n'
      + '\n'.join(rows[:5])
      + '\nIs it another variant? See config.model and config.pretrained.'
    )
