"""Makes a model from its config, its parameters, and their shapes."""

from collections.abc import Mapping
import dataclasses
import functools
from typing import Any

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import ml_collections

from vit_jax.configs import models as model_configs
from vit_jax.configs import spec
from vit_jax.models import blocks
from vit_jax.models.lit import LitModel
from vit_jax.models.mixer import MlpMixer
from vit_jax.models.vit import Encoder
from vit_jax.models.vit import VisionTransformer
from vit_jax.runtime import errors


def get_model(name: str, **kwargs: Any) -> nn.Module:
  """Returns a released model by name, such as `ViT-B_16` or `b16`.

  >>> model = models.get_model('ViT-Mini_8', num_classes=3)
  >>> params = models.init_params(model, (32, 32, 3))
  >>> model.apply({'params': params}, jnp.zeros([2, 32, 32, 3]), train=False).shape
  (2, 3)

  `kwargs` are further arguments of the module, such as `num_classes`. Raises a
  ValueError that lists the models if there is none of this name.
  """
  return from_config(model_configs.get_model_config(name), **kwargs)


def from_config(
  model_config: model_configs.ModelConfig, **kwargs: Any
) -> nn.Module:
  """Returns the model of a config; `kwargs` are further arguments of the module.

  Groups of settings can be read as in the official code: `model.pp.max_len`.

  Raises:
    errors.UserError: if the config has a setting that the model lacks.
  """
  family = _FAMILIES[spec.family(model_config)]
  _refuse_unknown(model_config, family, 'config.model')
  # Frozen, because modules are hashed.
  config = ml_collections.FrozenConfigDict({**model_config})
  return family(**{**config, **kwargs})


def _refuse_unknown(
  config: model_configs.ModelConfig, module: type[nn.Module], where: str
) -> None:
  known = {field.name for field in dataclasses.fields(module)}
  known -= {'parent', 'name'}  # Every module has these.
  for name in config:
    if name not in known:
      hint = errors.did_you_mean(name, known)
      raise errors.UserError(f'{where} has no setting {name!r}.{hint}')
  if module is LitModel:
    _refuse_unknown(config['image'], VisionTransformer, f'{where}.image')
  if module is VisionTransformer and config['transformer']:
    _refuse_unknown(config['transformer'], Encoder, f'{where}.transformer')


_FAMILIES = {'vit': VisionTransformer, 'mixer': MlpMixer, 'lit': LitModel}


def example_inputs(
  model: nn.Module, image_shape: tuple[int, int, int]
) -> dict[str, Any]:
  """Returns arguments to call a model with: one black image, one text."""
  images = jnp.zeros((1, *image_shape), jnp.float32)
  if spec.of_module(model).has_texts:
    tokens = jnp.zeros((1, model.pp['max_len']), jnp.int32)
    return {'images': images, 'tokens': tokens}
  return {'inputs': images}


def init_params(
  model: nn.Module, image_shape: tuple[int, int, int], seed: int = 0
) -> dict[str, Any]:
  """Returns freshly initialised parameters for images [H, W, C].

  The numbers do not depend on whether the model scans its blocks. Not jitted on
  purpose: compiling all initialisers in one program takes longer than running them
  one by one.
  """
  inputs = jax.eval_shape(lambda: example_inputs(model, image_shape))
  plain = unrolled(model)
  key = jax.random.key(seed)
  # Lazily: only the initialisers are computed, not the forward pass.
  params = plain.lazy_init(key, **inputs, train=False)['params']
  return params if plain is model else blocks.stack(params)


def abstract_params(
  model: nn.Module, image_shape: tuple[int, int, int]
) -> dict[str, Any]:
  """Returns shapes and dtypes of `init_params`, computed once for a model."""
  height, width, channels = image_shape  # May be a list, which has no hash.
  params = _abstract_params(model, (height, width, channels))
  return jax.tree.map(lambda x: x, params)


@functools.lru_cache(maxsize=32)
def _abstract_params(
  model: nn.Module, image_shape: tuple[int, int, int]
) -> Any:
  plain = unrolled(model)

  def init() -> Any:
    # Tracing the forward pass too is faster than leaving it out by `lazy_init`.
    inputs = example_inputs(model, image_shape)
    params = plain.init(jax.random.key(0), **inputs, train=False)['params']
    return params if plain is model else blocks.stack(params)

  return jax.eval_shape(init)


def unrolled(model: Any) -> nn.Module:
  """Returns a model with a parameter tree for each block, in both towers."""
  fields = {f.name: getattr(model, f.name) for f in dataclasses.fields(model)}
  plain = {name: _unrolled(name, x) for name, x in fields.items()}
  changes = {name: x for name, x in plain.items() if x is not fields[name]}
  return model.clone(**changes) if changes else model


def _unrolled(name: str, value: Any) -> Any:
  """Returns a field, or a group of them, without `scan_layers`."""
  if name == 'scan_layers':
    return False
  if not hasattr(value, 'items'):
    return value
  old = dict(value.items())
  new = {name: _unrolled(name, x) for name, x in old.items()}
  if all(new[name] is old[name] for name in old):
    return value
  return ml_collections.FrozenConfigDict(new)


def parameter_table(params: Mapping[str, Any]) -> str:
  """Returns a line for each parameter, equal blocks stacked, and their count."""
  stacked = jax.eval_shape(blocks.stack, dict(params))
  flat = flax.traverse_util.flatten_dict(stacked, sep='/')
  width = max(map(len, flat))
  lines = [f'{name:{width}}  {x.shape}' for name, x in flat.items()]
  total = sum(x.size for x in flat.values())
  return '\n'.join(['Parameters', *lines, f'{total:,} in all'])
