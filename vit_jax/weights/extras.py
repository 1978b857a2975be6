"""What a format has no field for, kept in a key of its JSON.

Other libraries ignore the key. Only what differs from what the format itself
says is kept there, so that nobody who edits a file finds two values in it.
"""

from collections.abc import Mapping
import dataclasses
import json
from typing import Any

from vit_jax.weights import record as weights_lib

KEY = 'vit_jax_weights'

_SAME = object()


def lost(
  weights: weights_lib.Weights, again: weights_lib.Weights
) -> dict[str, Any]:
  """Returns the fields of `weights` that were read back otherwise, as JSON.

  Args:
    weights: what was written.
    again: what the format gives back; its arrays are not compared.
  """
  have, want = _plain(again), _plain(weights)
  difference = _difference(want, have)
  return {} if difference is _SAME else difference


def restored(
  weights: weights_lib.Weights, config: Mapping[str, Any]
) -> weights_lib.Weights:
  """Returns weights with what `lost` found, of a `config.json`."""
  kept = dict(config.get(KEY, {}))
  preprocessing = weights.preprocessing.changed(kept.pop('preprocessing', {}))
  changes = {
    name: _merged(getattr(weights, name), value) for name, value in kept.items()
  }
  return dataclasses.replace(weights, preprocessing=preprocessing, **changes)


def _plain(weights: weights_lib.Weights) -> dict[str, Any]:
  """Returns every field but the arrays, as JSON has it."""
  fields = {
    field.name: getattr(weights, field.name)
    for field in dataclasses.fields(weights)
    if field.name != 'params'
  }
  fields['preprocessing'] = dataclasses.asdict(weights.preprocessing)
  return json.loads(json.dumps(fields))


def _difference(want: Any, have: Any) -> Any:
  """Returns the entries of `want` that are other than in `have`."""
  if not isinstance(want, dict) or not isinstance(have, dict):
    return _SAME if want == have else want
  entries = {k: _difference(v, have.get(k, _SAME)) for k, v in want.items()}
  entries = {k: v for k, v in entries.items() if v is not _SAME}
  return entries or _SAME


def _merged(old: Any, new: Any) -> Any:
  if not isinstance(old, Mapping) or not isinstance(new, dict):
    return new
  return {**old, **{k: _merged(old.get(k), v) for k, v in new.items()}}
