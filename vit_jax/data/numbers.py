"""Mean and standard deviation of the numbers that images are labelled with."""

import dataclasses
from typing import Any

from jaxtyping import Float
import numpy as np

from vit_jax.configs import labels as labels_lib
from vit_jax.data import sources
from vit_jax.runtime import errors


@dataclasses.dataclass(frozen=True)
class Scale:
  """Mean and standard deviation of each number over the training images."""

  mean: Float[np.ndarray, ' K']
  std: Float[np.ndarray, ' K']


def scale(source: sources.LabelledSource) -> Scale:
  """Returns the scale of the numbers of a source.

  Raises:
    errors.UserError: if a number is the same for all images.
  """
  values = source.labels().astype(float)
  mean, std = values.mean(axis=0), values.std(axis=0)
  spreads = np.ptp(values, axis=0)
  for name, value, spread in zip(
    source.class_names, mean, spreads, strict=True
  ):
    if not spread:
      raise errors.UserError(
        f'All {len(values)} training images have the {name} {value:g}: there is'
        f' nothing to learn. Add images with another one.'
      )
  return Scale(mean.astype(np.float32), std.astype(np.float32))


def of_source(source: Any) -> dict[str, dict[str, Any]] | None:
  """Returns lowest, mean, highest, standard deviation and unit of each number.

  None where images are not labelled with numbers.
  """
  if sources.task_of(source) != labels_lib.REGRESSION:
    return None
  found: dict[str, dict[str, Any]] = {}
  for name, values in zip(source.class_names, source.labels().T, strict=True):
    values = values.astype(float)
    found[name] = {
      'lowest': float(values.min()),
      'mean': float(values.mean()),
      'highest': float(values.max()),
      'std': float(values.std()),
    }
  if units := getattr(source, 'units', ()):
    for name, unit in zip(source.class_names, units, strict=True):
      found[name]['unit'] = unit
  return found
