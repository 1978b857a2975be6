"""Labels of any task, for people."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from vit_jax.configs import labels as labels_lib
from vit_jax.data import sources


def of_label(
  label: Any, source: sources.Source, names: Sequence[str] | None = None
) -> Any:
  """Returns a class, a list of classes, or {name: number}.

  Args:
    label: int, or float32 [K].
    source: where it is from.
    names: other names of the source's classes; None for its own.
  """
  names, task = names or source.class_names, sources.task_of(source)
  if task == labels_lib.MULTICLASS:
    return names[int(label)]
  values = np.asarray(label).tolist()
  if task == labels_lib.MULTILABEL:
    return [name for name, x in zip(names, values, strict=True) if x]
  return dict(zip(names, values, strict=True))


def of_source(
  source: sources.LabelledSource, names: Sequence[str] | None = None
) -> list[Any]:
  """Returns `of_label` of all images."""
  return [of_label(label, source, names) for label in source.labels()]


def number(value: float | np.floating) -> str:
  """Returns a number with four digits, or with all of those before its point."""
  is_long = 9999.5 <= abs(float(value)) < 1e15
  return f'{value:.0f}' if is_long else f'{value:.4g}'


def lines(label: Any, source: sources.Source) -> list[str]:
  """Returns the lines of a caption: a class each, or a number each."""
  found = of_label(label, source)
  if isinstance(found, dict):
    return [f'{name} {number(value)}' for name, value in found.items()]
  return found or ['none'] if isinstance(found, list) else [found]
