"""`Weights`: a model's parameters and all that is needed to run them."""

import collections
from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import dataclasses
from typing import Any

import flax.linen as nn
import flax.traverse_util
import jax
from jaxtyping import Array
import ml_collections
import numpy as np

from vit_jax import models
from vit_jax.configs import labels as labels_lib
from vit_jax.configs import models as model_configs
from vit_jax.configs import spec
from vit_jax.data import class_names as names_lib
from vit_jax.data import preprocessing as preprocessing_lib
from vit_jax.runtime import errors

Params = Mapping[str, Any]

# Arrays and settings that another program damaged raise these.
DAMAGED = (
  AssertionError,
  AttributeError,
  IndexError,
  KeyError,
  OverflowError,
  RecursionError,
  TypeError,
  ValueError,
  ZeroDivisionError,
)


class WeightsError(errors.UserError):
  """A fault of weights. `naming` puts their path before the message."""


@contextlib.contextmanager
def naming(source: object) -> Iterator[None]:
  """Puts the source of weights before the message of a `WeightsError`."""
  try:
    yield
  except WeightsError as e:
    raise WeightsError(f'{source} {e}'.strip()) from e


@dataclasses.dataclass(frozen=True)
class Weights:
  """What a file or a folder of weights holds.

  Attributes:
    params: nested, with the names of the official code.
    model: arguments of the model's class except `num_classes`, as in
      `configs.models`; None if unknown.
    class_names: classes, or names of numbers, in the order of the logits; empty
      without a head.
    preprocessing: how an image becomes the model's input.
    loss: 'softmax' or 'sigmoid', the function from logits to probabilities; for
      numbers, the loss they were learned with.
    task: one of `configs.labels.TASKS`. Logits of numbers are in their `units`.
    thresholds: probabilities from which on an image has each class, where it may
      have several; empty for 0.5.
    temperature: what logits are divided by before softmax.
    units: units of numbers; empty for none.
    info: how the weights were made: 'dataset', 'splits' (for training, for the test),
      'step', 'metrics'.
    vocabulary: file of the tokeniser of a model with a text tower; None for others.
    source: the file or folder that was read, for messages.
  """

  params: Params
  model: Mapping[str, Any] | None
  class_names: Sequence[str] = ()
  preprocessing: preprocessing_lib.Preprocessing = dataclasses.field(
    default_factory=preprocessing_lib.Preprocessing
  )
  loss: str = 'softmax'
  task: str = labels_lib.MULTICLASS
  thresholds: Sequence[float] = ()
  temperature: float = 1.0
  units: Sequence[str] = ()
  info: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  vocabulary: str | None = None
  source: str = 'the checkpoint'

  @property
  def image_shape(self) -> tuple[int, int, int] | None:
    """[H, W, C] of the input; None if unknown."""
    return self.preprocessing.image_shape

  def input_shape(self) -> tuple[int, int, int]:
    """Returns `image_shape`; raises `errors.UserError` if it is unknown."""
    if self.image_shape is None:
      raise errors.UserError(
        'The image size of these weights is unknown, because their patches are'
        ' not a square grid. Give it with image_size=HEIGHT,WIDTH.'
      )
    return self.image_shape

  def known_model(self) -> Mapping[str, Any]:
    """Returns `model`; raises `errors.UserError` if it is unknown."""
    if self.model is None:
      names = ', '.join(sorted(flatten(self.params))[:3])
      raise errors.UserError(
        f'These weights do not tell which model they belong to: their arrays'
        f' are {names}, ... To fine-tune them, set config.model.'
      )
    return self.model

  @property
  def spec(self) -> spec.ModelSpec:
    """What the model is; raises what `known_model` does."""
    return spec.of(self.known_model())

  def module(self) -> nn.Module:
    """Returns the model, without parameters; raises what `known_model` does."""
    return module_of(self.known_model(), len(self.class_names) or None)

  def image_tower(self) -> 'Weights':
    """Returns the image tower, without its head, of a model with two towers.

    Other weights are returned as they are.
    """
    if not spec.has_texts(self.model):
      return self
    model = self.known_model()
    tower = {'model_name': model.get('model_name'), **spec.image_tower(model)}
    params = {k: v for k, v in self.params['img'].items() if k != 'head'}
    return dataclasses.replace(
      self, params=params, model=tower, vocabulary=None, loss='softmax'
    )

  def with_temperature_in_head(self) -> 'Weights':
    """Returns weights with the same probabilities and a temperature of 1.

    Programs and other libraries have no temperature: they get these.
    """
    if self.temperature == 1 or not divides_logits(self):
      return self
    heads = {n: self.params[n] for n in spec.HEADS if n in self.params}
    divided = jax.tree.map(lambda x: np.asarray(x) / self.temperature, heads)
    params = {**self.params, **divided}
    return dataclasses.replace(self, params=params, temperature=1.0)

  def grid(self) -> tuple[int, int]:
    """Returns (rows, columns) of the patches of an image."""
    return self.spec.grid(self.input_shape()[:2])


def module_of(
  model: model_configs.ModelConfig, num_classes: int | None
) -> nn.Module:
  """Returns the model of a config with a head for so many classes, or none."""
  if spec.has_texts(model):  # Texts name its classes.
    return models.from_config(model)
  return models.from_config(model, num_classes=num_classes)


def flatten(params: Params) -> dict[str, Any]:
  """Returns {'module/name': array}."""
  return flax.traverse_util.flatten_dict(dict(params), sep='/')


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
  """Undoes `flatten`."""
  return flax.traverse_util.unflatten_dict(dict(flat), sep='/')


def info_of_data(config: ml_collections.ConfigDict) -> dict[str, Any]:
  """Returns what weights remember of the images they were trained on and tested with."""
  splits = [config.pp.train, config.pp.test]
  return {'dataset': config.dataset, 'splits': splits}


def numbered_classes(params: Params) -> list[str]:
  """Returns 'class 0', 'class 1', ..., one for each logit of the head."""
  head = params.get('head')
  return names_lib.numbered(len(head['bias'])) if head else []


def has_zero_head(params: Params) -> bool:
  """Whether the head is all zeros, as in the paper's ImageNet-21k files."""
  return 'head' in params and not any(
    np.any(x) for x in params['head'].values()
  )


def divides_logits(weights: Weights) -> bool:
  """Whether probabilities are the softmax of logits, divided by the temperature."""
  return weights.task != labels_lib.REGRESSION and weights.loss != 'sigmoid'


def to_predictions(weights: Weights) -> Callable[[Array], Array]:
  """Returns the function from logits to probabilities, or to numbers."""
  if divides_logits(weights):
    return lambda logits: jax.nn.softmax(logits / weights.temperature)
  if weights.task == labels_lib.REGRESSION:
    return lambda logits: logits
  return jax.nn.sigmoid


def units(weights: Weights) -> dict[str, str] | None:
  """Returns the unit of each number, '' for none; None if classes are predicted."""
  if weights.task != labels_lib.REGRESSION:
    return None
  found = weights.units or [''] * len(weights.class_names)
  return dict(zip(weights.class_names, found, strict=True))


def check_vision(weights: Weights) -> None:
  """Raises `errors.UserError` unless the model takes images of a known size."""
  weights.known_model()
  weights.input_shape()


def check_can_predict(weights: Weights) -> None:
  """Raises `errors.UserError` unless the weights have a trained head."""
  if spec.has_texts(weights.model):
    raise errors.UserError(
      'These weights compare images with texts: use'
      ' vit-jax zero_shot --labels=...'
    )
  if not weights.class_names:
    raise errors.UserError(
      'These weights have no head: they give features but no classes. Fine-tune'
      ' them with config.pretrained.'
    )
  if has_zero_head(weights.params):
    raise errors.UserError(
      'The head of these weights is all zeros, which would make all classes'
      ' equally probable: the ImageNet-21k files of the paper were published so.'
      ' Fine-tune them, or predict with weights whose head is `ok` in vit-jax'
      ' models.'
    )


def distinct(names: Sequence[str]) -> list[str]:
  """Returns names of which none occurs twice: 'crane' becomes 'crane (134)'.

  ImageNet has a bird and a machine of that name, and classes are found by name.
  """
  counts = collections.Counter(names)
  if len(counts) == len(names):
    return list(names)
  return [f'{x} ({i})' if counts[x] > 1 else x for i, x in enumerate(names)]


def first_kernel(params: Params) -> Any | None:
  """Returns the kernel that sees the image; None without one."""
  tower = flatten(params.get('img', params))  # The image tower of LiT models.
  return next((tower[n] for n in spec.FIRST_KERNELS if n in tower), None)


def num_channels(params: Params) -> int:
  """Returns how many channels the first kernel takes; 3 without one."""
  kernel = first_kernel(params)
  return 3 if kernel is None else kernel.shape[2]


def describe(weights: Weights) -> str:
  """Returns one line: name of the model, parameters, classes, image size."""
  name = (weights.model or {}).get('model_name')
  count = sum(np.size(x) for x in jax.tree.leaves(dict(weights.params)))
  shape = weights.image_shape
  size = f'{shape[0]}x{shape[1]} pixels' if shape else 'unknown image size'
  facts = f'{count:,} parameters, {len(weights.class_names)} classes, {size}'
  return f'{name}: {facts}' if name else facts
