"""Predictions of many images in one file, a row an image."""

from collections.abc import Callable, Iterable, Mapping, Sequence
import csv
import json
import os
import pathlib
from typing import Any

from vit_jax.evaluation import ranking
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import storage

Row = dict[str, Any]


def rows_of(
  outputs: ranking.Rows,
  names: Sequence[str],
  classes: Sequence[str],
  skipped: Mapping[str, str],
  *,
  labels: Sequence[str] | None = None,
  is_sigmoid: bool = False,
) -> list[Row]:
  """Returns a row for each image, those that were skipped last.

  Args:
    outputs: index and probabilities of each decoded image.
    names: names of all images.
    classes: classes of the model, in the order of the logits.
    skipped: why images were skipped, by their names; filled as `outputs` is read.
    labels: true classes of all images, if they are known.
    is_sigmoid: whether the classes do not exclude each other.

  Returns:
    {'image', 'label', 'predicted', 'confidence', 'margin', 'entropy', 'skipped',
    'probabilities'}. `margin` is the difference between the two most probable
    classes, `entropy` in nats; 'label' is there if `labels` are.
  """
  rows, seen = [], set()
  for place, p in outputs:
    seen.add(place)
    row = _begin(names[place], place, labels)
    row |= {
      'predicted': classes[int(p.argmax())],
      'confidence': float(p.max()),
      'margin': ranking.margin(p),
      'entropy': ranking.entropy(p, is_sigmoid=is_sigmoid),
      'skipped': '',
      'probabilities': dict(zip(classes, p.tolist(), strict=True)),
    }
    rows.append(row)
  for place, name in enumerate(names):
    if place not in seen:
      reason = skipped.get(name, 'it cannot be decoded')
      rows.append({**_begin(name, place, labels), 'skipped': reason})
  return rows


def _begin(name: str, place: int, labels: Sequence[str] | None) -> Row:
  row = {'image': name}
  return row if labels is None else row | {'label': labels[place]}


def check(output: str) -> None:
  """Raises `errors.UserError` unless the name of a file has a known ending."""
  if pathlib.PurePath(output).suffix not in _WRITERS:
    raise errors.UserError(
      f'output={output} must end in {", ".join(_WRITERS)}.'
    )


def write(rows: Iterable[Row], output: str) -> None:
  """Writes rows as CSV, JSON lines or Parquet, whole or not at all.

  JSON lines have the probabilities as one object, the others a column for each.
  """
  check(output)
  path = storage.local_path(output)
  with (
    errors.writing(f'output={output}'),
    files.replaced_file(path) as temporary,
  ):
    _WRITERS[path.suffix](list(rows), temporary)


def _flat(row: Row) -> Row:
  """Returns a row with a column for each probability; names are valid text."""
  probabilities = row.get('probabilities', {})
  row = {k: v for k, v in row.items() if k != 'probabilities'}
  row |= {f'probability of {k}': v for k, v in probabilities.items()}
  row['image'] = os.fsencode(row['image']).decode(errors='backslashreplace')
  return row


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
