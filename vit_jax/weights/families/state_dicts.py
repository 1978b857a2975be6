"""From the state dict of a family of transformers to weights, and back."""

from collections.abc import Mapping

import numpy as np

from vit_jax import models
from vit_jax.configs import spec
from vit_jax.data import preprocessing
from vit_jax.weights import record as weights_lib
from vit_jax.weights import torch_layout
from vit_jax.weights.families import record
from vit_jax.weights.families.record import Arrays
from vit_jax.weights.families.record import Family
from vit_jax.weights.families.record import Json


def read(
  family: Family, arrays: Arrays, config: Json, model_name: str
) -> tuple[weights_lib.Weights, dict[str, str]]:
  """Returns the weights and transformers' names of their arrays, by ours.

  Args:
    family: its table.
    arrays: the state dict.
    config: its `config.json`.
    model_name: for readers.
  """
  arrays = family.split(
    {k: x for k, x in arrays.items() if not k.endswith(family.ignored)}
  )
  config = family.complete(config, arrays)
  head = 'classifier.weight' in arrays
  model = {'model_name': model_name, **family.read(config, head)}
  names = family.names(model, head)
  num_classes = len(arrays[names['head/kernel']]) if head else None
  vision = config.get('vision_config') or config
  size = record.pair(vision.get('image_size', 224))
  channels = vision.get('num_channels', 3)
  if spec.has_texts(model):
    model['pp'] = {**model['pp'], 'size': size[0]}
  want = weights_lib.flatten(
    models.abstract_params(
      weights_lib.module_of(model, num_classes), (*size, channels)
    )
  )
  names = {ours: names[ours] for ours in want}
  flat = torch_layout.renamed(arrays, names, {*map(torch_layout.part, names)})

  def num_heads(name: str) -> int:
    shape = want[name].shape
    return shape[0] if name.endswith('/out/kernel') else shape[-2:][0]

  flat = {
    ours: x.reshape((1,) * _axes(family, names[ours]) + x.shape)
    for ours, x in flat.items()
  }
  params = torch_layout.to_linen(flat, names, num_heads)
  weights = weights_lib.Weights(
    params=params,
    model=model,
    class_names=weights_lib.numbered_classes(params),
    loss='sigmoid' if 'b' in params else 'softmax',
    preprocessing=preprocessing.Preprocessing(size=size, channels=channels),
  )
  return weights, names


def arrays_of(
  family: Family, weights: weights_lib.Weights
) -> dict[str, np.ndarray]:
  """Returns the state dict of weights that are of a family."""
  names = family.names(weights.known_model(), bool(weights.class_names))
  arrays = torch_layout.from_linen(weights.params, names)
  return family.join(
    {
      name: x.reshape(x.shape[_axes(family, name) :])
      for name, x in arrays.items()
    }
  )


def _axes(family: Family, name: str) -> int:
  """Returns how many leading axes of length 1 only our array has."""
  return next((n for end, n in family.axes.items() if name.endswith(end)), 0)


def find(
  families: Mapping[str, Family], kind: str, arrays: Arrays
) -> Family | None:
  """Returns the family of a `model_type` whose marker is among the arrays."""
  for key, family in families.items():
    is_kind = (family.model_type or key) == kind
    if is_kind and (not family.marker or family.marker in family.split(arrays)):
      return family
  return None
