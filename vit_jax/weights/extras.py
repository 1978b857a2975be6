"""Keeps fields that a format cannot hold under one key of its JSON.

Other libraries ignore the key. It has only the fields that the format itself
loses, so that people who edit a file find no value twice.
"""

from collections.abc import Mapping
import dataclasses
import json
from typing import Any

from absl import logging

from vit_jax.configs import spec
from vit_jax.weights import record as weights_lib

KEY = 'vit_jax_weights'

# Fields that belong to the parameters they were found with.
_OF_PARAMETERS = ('class_names', 'thresholds', 'temperature', 'units', 'info')

_SAME = object()


def lost(
  weights: weights_lib.Weights, again: weights_lib.Weights
) -> dict[str, Any]:
  """Returns the fields, except arrays, that a format changed, as JSON.

  Args:
    weights: what was written.
    again: what was read back.
  """
  difference = _difference(_plain(weights), _plain(again))
  return {} if difference is _SAME else difference


def is_saved_again(config: Mapping[str, Any]) -> bool:
  """Whether transformers wrote a `config.json`, which may have been ours.

  It keeps fields that it does not know, so what they say of parameters may be out
  of date.
  """
  return 'transformers_version' in config


def described(
  weights: weights_lib.Weights,
  config: Mapping[str, Any],
  preprocessing: Mapping[str, Any],
  **fields: Any,
) -> weights_lib.Weights:
  """Returns weights with the fields of a format and those that it lost.

  Fields that belong to other parameters are left out, with a warning, if
  transformers saved the weights again.

  Args:
    weights: parameters and all that they tell.
    config: the `config.json` that kept the lost fields.
    preprocessing: fields of the format; those that are None are not said.
    **fields: fields of the format.
  """
  said = {k: v for k, v in preprocessing.items() if v is not None}
  kept = dict(config.get(KEY, {}))
  if is_saved_again(config):
    stale = {k: kept.pop(k, None) for k in _OF_PARAMETERS}
    if told := [k for k, x in stale.items() if x and k != 'info']:
      logging.warning(
        'transformers has saved these weights again: %s of before are left out.',
        ', '.join(told),
      )
  record = weights.preprocessing.changed(said).changed(
    kept.pop('preprocessing', {})
  )
  weights = dataclasses.replace(weights, preprocessing=record, **fields)
  changes = {k: _merged(getattr(weights, k), v) for k, v in kept.items()}
  return dataclasses.replace(weights, **changes)


def _plain(weights: weights_lib.Weights) -> dict[str, Any]:
  """Returns every field except the arrays and the names of files, as JSON."""
  fields = {
    field.name: getattr(weights, field.name)
    for field in dataclasses.fields(weights)
    if field.name not in ('params', 'source', 'vocabulary')
  }
  fields['preprocessing'] = dataclasses.asdict(weights.preprocessing)
  fields = json.loads(json.dumps(fields))
  if weights.model:  # Formats have defaults of their own.
    tower = spec.image_tower(fields['model'])
    tower['posemb_resize'] = weights.spec.posemb_resize
  return fields


def _difference(want: Any, have: Any) -> Any:
  """Returns the entries of `want` that differ in `have`."""
  if not isinstance(want, dict) or not isinstance(have, dict):
    return _SAME if want == have else want
  entries = {k: _difference(v, have.get(k, _SAME)) for k, v in want.items()}
  entries = {k: v for k, v in entries.items() if v is not _SAME}
  return entries or _SAME


def _merged(old: Any, new: Any) -> Any:
  if not isinstance(old, Mapping) or not isinstance(new, dict):
    return new
  return {**old, **{k: _merged(old.get(k), v) for k, v in new.items()}}
