"""How many images each class has, and the weights that follow."""

from typing import Any

from absl import logging
from jaxtyping import Float
import numpy as np

from vit_jax.configs import labels as labels_lib
from vit_jax.configs import losses
from vit_jax.data import sources
from vit_jax.runtime import errors

_MOST_LISTED = 20  # Classes whose numbers are all in the log.


def of_source(source: Any) -> dict[str, int] | None:
  """Returns the images of each class by its name.

  None where there are no classes, or where all records would have to be read.
  """
  if not source.class_names or getattr(source, 'reads_labels', False):
    return None
  if not isinstance(source, sources.LabelledSource):
    return None
  if sources.task_of(source) == labels_lib.REGRESSION:
    return None
  counts = zip(source.class_names, _counts(source), strict=True)
  return {name: int(n) for name, n in counts}


def _counts(source: sources.LabelledSource) -> np.ndarray:
  """Returns how many images each class has, [K]."""
  values = source.labels()
  if sources.task_of(source) == labels_lib.MULTILABEL:
    return values.sum(axis=0)
  return np.bincount(values, minlength=len(source.class_names))


def log(train: Any, test: Any) -> None:
  """Logs the counts of both splits; warns of classes that one of them lacks."""
  counts, tested = of_source(train), of_source(test)
  if counts is None or tested is None:
    return
  if len(counts) <= _MOST_LISTED:
    rows = [f'{name} {n} + {tested.get(name, 0)}' for name, n in counts.items()]
    text = f'to train on + to test: {", ".join(rows)}'
  else:
    text = f'to train on {_range(counts)}; to test {_range(tested)}'
  logging.info('Images a class, %s.', text)
  for numbers, what in ((counts, 'to train on'), (tested, 'to test')):
    if missing := [name for name, n in numbers.items() if not n]:
      logging.warning('No images %s: %s.', what, errors.some(missing))


def weights(setting: str, source: Any) -> Float[np.ndarray, ' K'] | None:
  """Returns the weight of each class; None if all have 1.

  Args:
    setting: `config.class_weights`, which describes them.
    source: the training images, whose labels 'balanced' counts.

  Raises:
    errors.UserError: if there are not as many weights as classes, or a class has no
      images.
  """
  names = list(source.class_names)
  if not setting:
    return None
  if setting != losses.BALANCED:
    values = np.array([float(x) for x in setting.split(',')], np.float32)
    if len(values) != len(names):
      raise errors.UserError(
        f'config.class_weights has {len(values)} numbers, but there are'
        f' {len(names)} classes: {errors.some(names)}.'
      )
    return values
  numbers = _counts(source)
  if missing := [n for n, x in zip(names, numbers, strict=True) if not x]:
    raise errors.UserError(
      f"config.class_weights is 'balanced', but there are no images to train on of"
      f' {errors.some(missing)}.'
    )
  if sources.task_of(source) == labels_lib.MULTILABEL:
    others = np.maximum(len(source) - numbers, 1)  # 0 would leave a class out.
    return (others / numbers).astype(np.float32)
  return (numbers.sum() / (len(names) * numbers)).astype(np.float32)


def _range(counts: dict[str, int]) -> str:
  """Returns '5 (rare) to 1,300 (common)'."""
  fewest, most = min(counts, key=counts.get), max(counts, key=counts.get)  # type: ignore[arg-type]
  return f'{counts[fewest]:,} ({fewest}) to {counts[most]:,} ({most})'
