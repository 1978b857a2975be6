"""Compares model configs by what they mean, defaults filled in."""

from collections.abc import Mapping
import dataclasses
from typing import Any

from vit_jax.configs import spec
from vit_jax.models import lit
from vit_jax.models import vit

# For readers, for training alone, or stored with the image.
_IGNORED = (
  *('model_name', 'dtype', 'parent', 'name', 'encoder', 'num_classes', 'pp'),
  *('head_bias_init', 'dropout_rate', 'attention_dropout_rate', 'locked'),
  *('temperature_init', 'temperature_max', 'num_prefix_tokens'),
  *spec.OF_TRAINING,
)


def lost(model: Mapping[str, Any], again: Mapping[str, Any]) -> list[str]:
  """Returns the settings of a model, as 'name=value', that differ in another."""
  want, have = _settings(model), _settings(again)
  return [
    f'{name}={value}'
    for name, value in sorted(want.items())
    if have.get(name) != value
  ]


def _settings(model: Mapping[str, Any]) -> dict[str, Any]:
  """Returns all settings that change what a model computes, as {'a.b': value}."""
  if spec.has_texts(model):
    text = _with_defaults(model['text'], lit.TEXT_MODELS[model['text_model']])
    encoder = _encoder(model['text'].get('encoder', {}))
    rest = {k: v for k, v in model.items() if k not in ('image', 'text')}
    rest['bias_init'] = None if model.get('bias_init') is None else 'any'
    groups = {'image.': _settings(model['image'])}
    groups |= {'text.': text, 'text.encoder.': encoder, '': _plain(rest)}
  elif spec.family(model) == 'vit':
    own = _with_defaults(model, vit.VisionTransformer)
    for group in ('transformer', 'patches', 'resnet'):
      own.pop(group)
    patches = {'bias': True, **model['patches']}
    groups = {'': own, 'patches.': _plain(patches)}
    groups['resnet.'] = _plain(model.get('resnet') or {})
    groups['transformer.'] = _encoder(model['transformer'] or {})
  else:
    groups = {'': _plain(model)}
  return {
    f'{group}{name}': value
    for group, values in groups.items()
    for name, value in values.items()
  }


def _encoder(encoder: Mapping[str, Any]) -> dict[str, Any]:
  own = _with_defaults(encoder, vit.Encoder)
  own.pop('block')
  defaults = _defaults(vit.Encoder1DBlock)
  block = {k: v for k, v in defaults.items() if k not in own}
  block |= _plain(encoder.get('block', {}))
  if block['activation'] != 'gelu':
    own['exact_gelu'] = None
  return own | {f'block.{name}': value for name, value in block.items()}


def _with_defaults(values: Mapping[str, Any], module: Any) -> dict[str, Any]:
  return {**_defaults(module), **_plain(values)}


def _defaults(module: Any) -> dict[str, Any]:
  return _plain(
    {
      field.name: field.default
      for field in dataclasses.fields(module)
      if field.default is not dataclasses.MISSING
    }
  )


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
  """Returns values that can be compared, without those that do not matter."""
  return {
    name: tuple(value) if isinstance(value, list) else value
    for name, value in values.items()
    if name not in _IGNORED
  }
