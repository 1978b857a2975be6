"""Predictions of many images in one file, a row an image."""

from collections.abc import Callable, Iterable, Mapping, Sequence
import csv
import functools
import json
import os
import pathlib
from typing import Any

import numpy as np

from vit_jax.configs import labels as labels_lib
from vit_jax.evaluation import multilabel
from vit_jax.evaluation import ranking
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.weights import record as weights_lib

Row = dict[str, Any]

_BETWEEN = '|'  # The classes of an image, as in tables that are read.
_TITLES = {'probabilities': 'probability of'}


def rows_of(
  outputs: ranking.Rows,
  names: Sequence[str],
  weights: weights_lib.Weights,
  skipped: Mapping[str, str],
  *,
  labels: Sequence[Any] | None = None,
) -> list[Row]:
  """Returns a row for each image, those that were skipped last.

  Args:
    outputs: index and probabilities, or numbers, of each decoded image.
    names: names of all images.
    weights: the model, which says what its outputs mean.
    skipped: why images were skipped, by their names; filled as `outputs` is read.
    labels: true labels of all images, from `data.label_texts`; None if they are unknown.

  Returns:
    {'image', 'label', 'predicted', 'confidence', 'margin', 'entropy', 'skipped',
    'probabilities'}. 'label' is there if `labels` are. `entropy` is in nats, `margin`
    the difference between the two most probable classes. Where an image may have
    several classes, 'predicted' is a list, `margin` the smallest difference between
    a probability and its threshold, and `confidence` the smallest probability of
    what is predicted, present or absent, of each class. Of numbers there is
    'predicted' alone, {name: number}.
  """
  describe = functools.partial(_DESCRIBE[weights.task], weights=weights)
  rows, seen = [], set()
  for place, output in outputs:
    seen.add(place)
    begin = _begin(names[place], place, labels)
    rows.append({**begin, **describe(output), 'skipped': ''})
  for place, name in enumerate(names):
    if place not in seen:
      reason = skipped.get(name, 'it cannot be decoded')
      rows.append({**_begin(name, place, labels), 'skipped': reason})
  return rows


def _begin(name: str, place: int, labels: Sequence[Any] | None) -> Row:
  row = {'image': name}
  return row if labels is None else row | {'label': labels[place]}


def _of_class(p: np.ndarray, weights: weights_lib.Weights) -> Row:
  is_sigmoid = weights.loss == 'sigmoid'
  return {
    'predicted': weights.class_names[int(p.argmax())],
    'confidence': float(p.max()),
    'margin': ranking.margin(p),
    'entropy': ranking.entropy(p, is_sigmoid=is_sigmoid),
    'probabilities': _by_name(p, weights),
  }


def _of_classes(p: np.ndarray, weights: weights_lib.Weights) -> Row:
  limits = multilabel.thresholds(weights)
  present = ranking.present(p, weights.class_names, limits)
  return {
    'predicted': [name for name, _ in present],
    'confidence': float(np.where(p >= np.asarray(limits), p, 1 - p).min()),
    'margin': ranking.least_margin(p, limits),
    'entropy': ranking.entropy(p, is_sigmoid=True),
    'probabilities': _by_name(p, weights),
  }


def _of_numbers(values: np.ndarray, weights: weights_lib.Weights) -> Row:
  return {'predicted': _by_name(values, weights)}


def _by_name(
  values: np.ndarray, weights: weights_lib.Weights
) -> dict[str, float]:
  return dict(zip(weights.class_names, values.tolist(), strict=True))


_DESCRIBE: dict[str, Callable[..., Row]] = {
  labels_lib.MULTICLASS: _of_class,
  labels_lib.MULTILABEL: _of_classes,
  labels_lib.REGRESSION: _of_numbers,
}


def check(output: str, flag: str = 'output') -> pathlib.Path:
  """Returns the path; raises `errors.UserError` unless `write` can write it."""
  return files.output_path(output, _WRITERS, flag)


def write(rows: Iterable[Row], output: str, flag: str = 'output') -> None:
  """Writes rows as CSV, JSON lines or Parquet, whole or not at all.

  JSON lines have the probabilities as one object, the others a column for each.
  """
  path = check(output, flag)
  with (
    errors.writing(f'{flag}={output}'),
    files.replaced_file(path) as temporary,
  ):
    _WRITERS[path.suffix](list(rows), temporary)


def _flat(row: Row) -> Row:
  """Returns a row with texts and numbers alone; names are valid text."""
  flat: Row = {}
  for name, value in row.items():
    if isinstance(value, dict):
      title = _TITLES.get(name, name)
      flat |= {f'{title} {key}': x for key, x in value.items()}
    else:
      flat[name] = _BETWEEN.join(value) if isinstance(value, list) else value
  flat['image'] = os.fsencode(row['image']).decode(errors='backslashreplace')
  return flat


def _columns(rows: Sequence[Row]) -> list[str]:
  return list(dict.fromkeys(name for row in rows for name in row))


def _write_csv(rows: Sequence[Row], path: pathlib.Path) -> None:
  flat = [_flat(row) for row in rows]
  with open(path, 'w', newline='', encoding='utf-8') as f:
    writer = csv.DictWriter(f, _columns(flat))
    writer.writeheader()
    writer.writerows(flat)


def _write_jsonl(rows: Sequence[Row], path: pathlib.Path) -> None:
  with open(path, 'w', encoding='utf-8') as f:
    f.writelines(json.dumps(row) + '\n' for row in rows)


def _write_parquet(rows: Sequence[Row], path: pathlib.Path) -> None:
  import pyarrow as pa  # Imported late: it takes time.
  from pyarrow import parquet

  flat = [_flat(row) for row in rows]
  columns = {name: [row.get(name) for row in flat] for name in _columns(flat)}
  parquet.write_table(pa.table(columns), path)


_WRITERS: dict[str, Callable[[Sequence[Row], pathlib.Path], None]] = {
  '.csv': _write_csv,
  '.jsonl': _write_jsonl,
  '.parquet': _write_parquet,
}
