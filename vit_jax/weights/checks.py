"""Checks of weights that other programs may have written."""

from collections.abc import Mapping
import math
from typing import Any

import numpy as np

from vit_jax import models
from vit_jax.configs import images
from vit_jax.configs import labels as labels_lib
from vit_jax.data import preprocessing as preprocessing_lib
from vit_jax.runtime import errors
from vit_jax.weights import record


def check(
  weights: record.Weights, names: Mapping[str, str] | None = None
) -> None:
  """Raises `WeightsError` unless the parameters fit the model.

  Args:
    weights: what to check; passes if the model or the image size is unknown.
    names: what the file calls its arrays, by their official names.
  """
  shape = weights.image_shape
  if weights.model is None or shape is None:
    return
  _check_preprocessing(weights.preprocessing)
  _check_outputs(weights)
  wrong = [n for n in weights.class_names if not isinstance(n, str)]
  if wrong:
    raise record.WeightsError(f'has the label {wrong[0]!r}, which is not text.')
  try:
    want = models.abstract_params(weights.module(), shape)
  except record.DAMAGED as e:
    raise record.WeightsError(
      f'does not make a model: {errors.first_line(e)} Its shapes or its'
      f' config.json are damaged, or belong to another architecture.'
    ) from e
  flat = record.flatten(weights.params)
  check_fit(flat, record.flatten(want), 'its model', names)
  _check_numbers(flat, names or {})


def _check_numbers(flat: Mapping[str, Any], names: Mapping[str, str]) -> None:
  """Raises `WeightsError` if a parameter is NaN or infinite."""
  with np.errstate(over='ignore', invalid='ignore'):
    # A sum is finite only if all numbers are, and fast.
    suspects = [n for n, x in flat.items() if not np.isfinite(np.sum(x))]
  for name in suspects:
    bad = np.count_nonzero(~np.isfinite(flat[name]))
    if bad:
      raise record.WeightsError(
        f'has {bad} of {np.size(flat[name])} numbers in {names.get(name, name)} that'
        f' are NaN or infinite: its training diverged, or the file is damaged.'
      )


def _check_outputs(weights: record.Weights) -> None:
  """Raises `WeightsError` unless outputs become predictions."""
  is_number = lambda x: isinstance(x, int | float) and math.isfinite(x)
  temperature, limits = weights.temperature, weights.thresholds
  if not (is_number(temperature) and temperature > 0):
    raise record.WeightsError(
      f'has the temperature {temperature!r}, must be above 0.'
    )
  if limits and not (
    len(limits) == len(weights.class_names) and all(map(is_number, limits))
  ):
    raise record.WeightsError(
      f'has the thresholds {errors.some([str(x) for x in limits])}: it needs one'
      f' number for each of {len(weights.class_names)} classes, or none.'
    )
  for name, value, known in (
    ('task', weights.task, labels_lib.TASKS),
    ('loss', weights.loss, labels_lib.every(labels_lib.LOSSES)),
  ):
    if value not in known:
      raise record.WeightsError(
        f'has the {name} {value!r}, must be one of {", ".join(known)}.'
      )


def _check_preprocessing(how: preprocessing_lib.Preprocessing) -> None:
  if how.interpolation not in images.INTERPOLATIONS:
    raise record.WeightsError(
      f'has the interpolation {how.interpolation!r}, must be one of'
      f' {", ".join(images.INTERPOLATIONS)}.'
    )
  resize, size = how.resize_test, how.size
  sides = (resize, resize) if isinstance(resize, int) else resize
  if sides and size and any(a < b for a, b in zip(sides, size, strict=True)):
    raise record.WeightsError(
      f'resizes images to {sides[0]}x{sides[1]} and takes {size[0]}x{size[1]}'
      f' pixels of them, which are more.'
    )
  for name, values in (('mean', how.mean), ('std', how.std)):
    is_right = len(values) in (1, how.channels) and all(
      isinstance(v, int | float)
      and math.isfinite(v)
      and (name == 'mean' or v > 0)
      for v in values
    )
    if not is_right:
      raise record.WeightsError(
        f'has the {name} {tuple(values)} of pixels: it needs 1 number or'
        f' {how.channels}, one a channel, and std must be greater than 0.'
      )


def check_fit(
  have: Mapping[str, Any],
  want: Mapping[str, Any],
  model: str,
  names: Mapping[str, str] | None = None,
) -> None:
  """Raises `WeightsError` unless flat names and shapes are those of `model`."""
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
    raise record.WeightsError(
      f'does not fit {model}: {len(rows)} arrays differ'
      f' ({len(have)} in the file, {len(want)} in the model).\n'
      + '\n'.join(rows[:5])
      + '\nIs it another variant? See config.model and config.pretrained.'
    )
