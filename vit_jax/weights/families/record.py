"""`Family`, the record of one family of transformers, and what most share."""

from collections.abc import Callable, Iterable, Mapping
import dataclasses
from typing import Any

import numpy as np

from vit_jax.weights import record as weights_lib

Json = Mapping[str, Any]
Arrays = Mapping[str, Any]

POSITIONS = 'Transformer/posembed_input/pos_embedding'

# By `hidden_act`: our activation, and whether a GELU is exact.
_ACTIVATIONS = {
  'gelu': ('gelu', True),
  'gelu_python': ('gelu', True),
  'gelu_pytorch_tanh': ('gelu', False),
  'gelu_new': ('gelu', False),
  'gelu_fast': ('gelu', False),
  'quick_gelu': ('quick_gelu', False),
}


def _unchanged(values: Mapping[str, Any], *_: Any) -> dict[str, Any]:
  return dict(values)


@dataclasses.dataclass(frozen=True)
class Family:
  """A family of models of transformers.

  Attributes:
    read: returns our model config for a `config.json` and whether there is a head;
      what the JSON leaves out has the library's default.
    write: returns the fields of a `config.json` for our model config. What the
      JSON cannot say is found by reading it back.
    names: returns {our name: transformers' name} of all arrays that a model may
      have; takes our config and whether there is a head.
    architectures: classes in transformers without and with a head; None where
      there is none.
    complete: adds to a `config.json` what only the arrays, after `split`, tell.
    split: replaces arrays that hold several of ours.
    join: undoes `split`.
    ignored: ends of the names of arrays that only training needs.
    model_type: `model_type` of its JSON; '' for its key in `FAMILIES`.
    marker: array, after `split`, that families of this `model_type` before it
      lack; '' if it has none.
    axes: number of leading axes of length 1 that only our array has, by the end
      of transformers' name.
    preprocessor: fields of a `preprocessor_config.json` that leaves them out.
    tokenizer: fields of a `tokenizer_config.json`, by our name of the tokeniser;
      for two towers.
    processor: image processor that cuts images into patches; '' where the model
      does so.
    square: fields of its JSON, of `image_size` and `patch_size`, that its code
      takes only as one number.
  """

  read: Callable[[Json, bool], dict[str, Any]]
  write: Callable[[Json], dict[str, Any]]
  names: Callable[[Json, bool], dict[str, str]]
  architectures: tuple[str | None, str | None]
  complete: Callable[[Json, Arrays], dict[str, Any]] = _unchanged
  split: Callable[[Arrays], dict[str, np.ndarray]] = _unchanged
  join: Callable[[Arrays], dict[str, np.ndarray]] = _unchanged
  ignored: tuple[str, ...] = ()
  model_type: str = ''
  marker: str = ''
  axes: Mapping[str, int] = dataclasses.field(default_factory=dict)
  preprocessor: Json = dataclasses.field(default_factory=dict)
  tokenizer: Json = dataclasses.field(default_factory=dict)
  processor: str = ''
  square: tuple[str, ...] = ()


def pair(size: Any) -> tuple[int, int]:
  """Returns (height, width) of a size that may be one number."""
  return (size, size) if isinstance(size, int) else tuple(size)


def one_or_pair(size: Any) -> int | list[int]:
  """Undoes `pair`."""
  return size[0] if size[0] == size[1] else list(size)


def vit(
  config: Json,
  *,
  mlp_dim: int,
  layer_norm_epsilon: float,
  patch_size: Any,
  block: Json,
  **fields: Any,
) -> dict[str, Any]:
  """Returns a ViT's config with the fields that all families name alike.

  Args:
    config: the `config.json`.
    mlp_dim: width of the MLPs.
    layer_norm_epsilon: epsilon of all LayerNorms.
    patch_size: one number, or height and width.
    block: arguments of `Encoder1DBlock`; those at their defaults are left out.
      Its activation is that of the `config.json` unless given.
    **fields: further fields; those at their defaults are left out.
  """
  width = config.get('hidden_size', 768)
  heads = config.get('num_attention_heads', 12)
  if width % heads:
    raise weights_lib.WeightsError(
      f'has the width {width}, which {heads} heads do not divide.'
    )
  kind, is_exact = activation(config.get('hidden_act', 'gelu'))
  transformer: dict[str, Any] = {
    'mlp_dim': mlp_dim,
    'num_heads': heads,
    'num_layers': config.get('num_hidden_layers', 12),
    'attention_dropout_rate': float(
      config.get('attention_probs_dropout_prob', 0.0)
    ),
    'dropout_rate': float(config.get('hidden_dropout_prob', 0.0)),
    'layer_norm_epsilon': float(layer_norm_epsilon),
    'exact_gelu': is_exact,
  }
  if block := _unusual({'activation': kind, **block}):
    transformer['block'] = block
  return {
    'patches': {'size': pair(patch_size)},
    'hidden_size': width,
    'transformer': transformer,
    'representation_size': None,
    **_unusual(fields),
  }


_DEFAULTS = {
  'activation': 'gelu',
  'biases': 'qkv',
  'num_registers': 0,
  'posemb_resize': 'zoom',
}


def _unusual(values: Json) -> dict[str, Any]:
  """Returns the settings that are not at their default, None where unnamed."""
  return {k: v for k, v in values.items() if v != _DEFAULTS.get(k)}


def activation(hidden_act: str) -> tuple[str, bool]:
  """Returns our activation and whether it is an exact GELU."""
  if hidden_act not in _ACTIVATIONS:
    raise weights_lib.WeightsError(
      f'has the activation {hidden_act!r}; known are {sorted(_ACTIVATIONS)}.'
    )
  return _ACTIVATIONS[hidden_act]


def hidden_act(encoder: Json) -> str:
  """Undoes `activation` for the arguments of an `Encoder`."""
  ours = encoder.get('block', {}).get('activation', 'gelu')
  exact = ours == 'gelu' and bool(encoder.get('exact_gelu'))
  known = (k for k, x in _ACTIVATIONS.items() if x == (ours, exact))
  return next(known, 'gelu')


def vit_json(model: Json) -> dict[str, Any]:
  """Undoes `vit` for the fields that all families name alike."""
  encoder = model['transformer']
  return {
    'hidden_size': model['hidden_size'],
    'num_hidden_layers': encoder['num_layers'],
    'num_attention_heads': encoder['num_heads'],
    'hidden_act': hidden_act(encoder),
    'hidden_dropout_prob': encoder.get('dropout_rate', 0.0),
    'attention_probs_dropout_prob': encoder.get('attention_dropout_rate', 0.0),
    'layer_norm_eps': encoder.get('layer_norm_epsilon', 1e-6),
    'patch_size': one_or_pair(tuple(model['patches']['size'])),
  }


def blocks(
  model: Json, theirs: str, table: Iterable[tuple[str, str]]
) -> list[tuple[str, str]]:
  """Returns rows for all blocks of a ViT, from those of one block.

  `theirs` is transformers' name of a block, with {} for its number.
  """
  return [
    (f'Transformer/encoderblock_{i}/{ours}', f'{theirs.format(i)}.{name}')
    for i in range(model['transformer']['num_layers'])
    for ours, name in table
  ]
