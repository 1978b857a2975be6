"""What Hugging Face's `datasets` writes of columns into the schema of a file."""

from collections.abc import Sequence
import json
from typing import Any

# Kinds of columns: images, one class a row, any number of classes a row.
IMAGE, CLASS, CLASSES = 'image', 'class', 'classes'

Feature = Any
Features = dict[str, Feature]


def of_schema(schema: Any) -> Features:
  """Returns the features of a pyarrow schema by column; empty if it has none."""
  text = (schema.metadata or {}).get(b'huggingface', b'{}')
  try:
    features = json.loads(text)['info']['features']
  except (ValueError, KeyError, TypeError):
    return {}
  return features if isinstance(features, dict) else {}


def kind(feature: Feature) -> str:
  """Returns `IMAGE`, `CLASS`, `CLASSES`, or '' for a column of something else."""
  if (item := _item(feature)) is not None:
    return CLASSES if kind(item) == CLASS else ''
  named = feature.get('_type') if isinstance(feature, dict) else None
  return {'Image': IMAGE, 'ClassLabel': CLASS}.get(str(named), '')


def _item(feature: Feature) -> Feature | None:
  """Returns the feature of the items of a list; None for other columns."""
  if isinstance(feature, list):
    return feature[0] if feature else None
  return feature.get('feature') if isinstance(feature, dict) else None


def class_names(feature: Feature) -> list[str]:
  """Returns the names of the classes of a column; empty if it has none."""
  if kind(feature) == CLASSES:
    feature = _item(feature)
  if kind(feature) != CLASS:
    return []
  return [str(name) for name in feature.get('names') or ()]


def named(values: Sequence[Any], names: Sequence[str]) -> list[Any]:
  """Returns classes, or lists of classes, by name; others stay as they are."""

  def name(value: Any) -> Any:
    if isinstance(value, list):
      return [name(x) for x in value]
    is_place = isinstance(value, int) and 0 <= value < len(names)
    return names[value] if is_place else value

  return [name(value) for value in values]
