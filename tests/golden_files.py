"""Files with numbers of the official code, in tests/golden."""

import gzip
import json
import pathlib

import numpy as np

REPOSITORY = pathlib.Path(__file__).parents[1]


GOLDEN = REPOSITORY / 'tests' / 'golden'


def golden_json(name: str) -> dict:
  """Reads `name` of tests/golden, gzipped or not."""
  path = GOLDEN / name
  if path.suffix == '.gz':
    return json.loads(gzip.decompress(path.read_bytes()))
  return json.loads(path.read_text())


def golden_arrays(name: str) -> dict[str, np.ndarray]:
  """Reads the arrays of `name` in tests/golden."""
  with np.load(GOLDEN / name) as arrays:
    return dict(arrays)
