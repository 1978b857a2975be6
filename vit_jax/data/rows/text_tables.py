"""Tables of text: .csv, .tsv and .jsonl files."""

from collections.abc import Sequence
import functools
import json
import os
import pathlib
from typing import Any

from vit_jax.data.rows import arrow_images
from vit_jax.runtime import errors


def is_separated(path: object) -> bool:
  """Whether a table is a .csv or .tsv, in which a word such as NA means no value."""
  return str(path).lower().endswith(('.csv', '.tsv'))


def read(path: pathlib.Path, texts: Sequence[str]) -> Any:
  """Returns a pyarrow table, in which the columns `texts` of a .csv are text.

  Raises:
    errors.UserError: if it cannot be read; the message has the line, if one is wrong.
  """
  with arrow_images.reading(path):
    status = os.stat(path)
    return _parsed(path, status.st_size, status.st_mtime_ns, tuple(texts))


@functools.lru_cache(maxsize=1)  # All splits are of one table.
def _parsed(
  path: pathlib.Path, size: int, changed: int, texts: Sequence[str]
) -> Any:
  """Returns the table of a file, which is read again only after it has changed."""
  del size, changed
  data = path.read_bytes()
  try:
    data.decode()
  except UnicodeDecodeError as e:
    line = data.count(b'\n', 0, e.start) + 1
    raise errors.UserError(
      f'{path}, line {line} is not text in UTF-8: save the table in that encoding.'
    ) from e
  read_as = _json_lines if path.suffix.lower() == '.jsonl' else _csv
  return read_as(path, data, texts)


def _csv(path: pathlib.Path, data: bytes, texts: Sequence[str]) -> Any:
  import pyarrow as pa  # Imported late: only tables need it.
  from pyarrow import csv

  delimiter = '\t' if path.suffix.lower() == '.tsv' else ','
  # An empty cell stays one: it is no class, where an image may have several.
  missing = [x for x in csv.ConvertOptions().null_values if x]
  table = csv.read_csv(
    pa.BufferReader(data),
    parse_options=csv.ParseOptions(
      delimiter=delimiter, newlines_in_values=True
    ),
    # Labels such as 007 stay as they are, and a class may be called "NA".
    convert_options=csv.ConvertOptions(
      column_types=dict.fromkeys(texts, pa.string()),
      null_values=missing,
      strings_can_be_null=True,
      quoted_strings_can_be_null=False,
    ),
  )
  if data.count(b'"') % 2 and len(table):
    last = table.slice(len(table) - 1).columns
    if any('\n' in str(column[0].as_py()) for column in last):
      raise errors.UserError(
        f'{path}, row {len(table)} has a quotation mark that is not closed: all'
        f' lines after it are in one cell.'
      )
  return table


def _json_lines(path: pathlib.Path, data: bytes, texts: Sequence[str]) -> Any:
  import pyarrow as pa  # Imported late: only tables need it.
  from pyarrow import json as pyarrow_json

  try:
    table = pyarrow_json.read_json(pa.BufferReader(data))
    dates = {
      field.name: _as_text(field.type)
      for field in table.schema
      if field.name in texts and 'timestamp' in str(field.type)
    }
    if not dates:
      return table
    options = pyarrow_json.ParseOptions(explicit_schema=pa.schema(dates))
    return pyarrow_json.read_json(pa.BufferReader(data), parse_options=options)
  except pa.ArrowException:  # It counts lines in parts of a file.
    _refuse_line(path, data, texts)
    raise


def _as_text(dates: Any) -> Any:
  """Returns the type of what pyarrow takes for dates, or lists of dates, as text."""
  import pyarrow as pa  # Imported late: only tables need it.

  return pa.list_(pa.string()) if pa.types.is_list(dates) else pa.string()


def _refuse_line(path: pathlib.Path, data: bytes, texts: Sequence[str]) -> None:
  """Raises `errors.UserError` at a line that is wrong, or unlike those before."""
  seen: dict[str, tuple[int, Any]] = {}
  for number, line in enumerate(data.decode('utf-8-sig').split('\n'), 1):
    if not line.strip():
      continue
    try:
      row = json.loads(line)
    except ValueError as e:
      raise errors.UserError(f'{path}, line {number} is not JSON: {e}.') from e
    if not isinstance(row, dict):
      raise errors.UserError(
        f'{path}, line {number} is not an object in JSON. Each line must be one,'
        f' such as {{"image": "a.png", "label": "cat"}}.'
      )
    for name in texts:
      if (value := row.get(name)) is None:
        continue
      first, other = seen.setdefault(name, (number, value))
      if _kind(value) != _kind(other):
        raise errors.UserError(
          f'{path}, line {number} has the {name} {value!r}, but line {first} has'
          f' {other!r}: all must be text, or all must be numbers.'
        )


def _kind(value: Any) -> str:
  """Returns what pyarrow does not mix in a column."""
  return 'number' if type(value) in (int, float) else type(value).__name__
