"""Model families, one a file, and `get_model` to make one by name.

vit               Vision Transformer, to be read beside the paper
resnet            the stem of hybrids
mixer             MLP-Mixer
lit               LiT: an image tower and a text tower
bert              BERT, a text tower
layers            dense layers, attention, LayerNorm: all arithmetic
blocks            depth: unrolled or scanned, remat, stochastic depth
positions         fixed position embeddings
losses            losses, one number an example
inference         the forward pass without training
capture           tokens of a layer, attention weights
flops             operations of a model, speed and memory of devices
attention_choice  the fastest attention here, by measurement
"""

from collections.abc import Mapping
import functools
import re
from typing import Any

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from vit_jax.configs import models as model_configs
from vit_jax.configs import spec
from vit_jax.models import blocks
from vit_jax.models.lit import LitModel
from vit_jax.models.lit import similarities
from vit_jax.models.mixer import MlpMixer
from vit_jax.models.vit import AddPositionEmbs
from vit_jax.models.vit import Encoder
from vit_jax.models.vit import Encoder1DBlock
from vit_jax.models.vit import MlpBlock
from vit_jax.models.vit import VisionTransformer

__all__ = (
  'AddPositionEmbs',
  'Encoder',
  'Encoder1DBlock',
  'LitModel',
  'MlpBlock',
  'MlpMixer',
  'VisionTransformer',
  'example_inputs',
  'from_config',
  'get_model',
  'init_params',
  'parameter_table',
  'similarities',
)


def get_model(name: str, **kwargs: Any) -> nn.Module:
  """Returns a released model by name, `ViT-B_16` or `b16`.

  Args:
    name: see `configs.models.MODEL_CONFIGS`.
    **kwargs: further arguments of the module, `num_classes` above all.

  Raises:
    ValueError: if there is no such model.
  """
  return from_config(model_configs.get_model_config(name), **kwargs)


def from_config(
  model_config: model_configs.ModelConfig, **kwargs: Any
) -> nn.Module:
  """Returns a model of the family that a config is for.

  Groups of settings can be read as in the official code: `model.pp.max_len`.

  Args:
    model_config: as in `configs.models`; its fields tell the family.
    **kwargs: further arguments of the module.
  """
  # Frozen, because modules are hashed.
  config = ml_collections.FrozenConfigDict({**model_config})
  return _FAMILIES[spec.family(model_config)](**{**config, **kwargs})


_FAMILIES = {'vit': VisionTransformer, 'mixer': MlpMixer, 'lit': LitModel}


def example_inputs(
  model: nn.Module, image_shape: tuple[int, int, int]
) -> dict[str, jax.Array]:
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

  They are the same numbers whether the model scans its blocks or not. Not
  jitted on purpose: compiling all the initialisers in one program takes longer
  than running them one by one.
  """
  inputs = example_inputs(model, image_shape)
  plain = _unrolled(model)
  params = plain.init(jax.random.key(seed), **inputs, train=False)['params']
  return params if plain is model else blocks.stack(params)


def abstract_params(
  model: nn.Module, image_shape: tuple[int, int, int]
) -> dict[str, Any]:
  """Returns shapes and dtypes of `init_params`, computed once for a model."""
  return jax.tree.map(lambda x: x, _abstract_params(model, tuple(image_shape)))


@functools.lru_cache(maxsize=32)
def _abstract_params(model: nn.Module, image_shape: tuple[int, ...]) -> Any:
  return jax.eval_shape(lambda: init_params(model, image_shape))


def _unrolled(model: nn.Module) -> nn.Module:
  """Returns a model with a tree of parameters for each block."""
  if getattr(model, 'scan_layers', False):
    return model.clone(scan_layers=False)
  transformer = getattr(model, 'transformer', None) or {}
  if transformer.get('scan_layers'):
    return model.clone(transformer={**transformer, 'scan_layers': False})
  return model


def parameter_table(params: Mapping[str, Any]) -> str:
  """Returns a table of modules, shapes and parameter counts.

  Args:
    params: arrays or `jax.ShapeDtypeStruct`; equal blocks share a row.
  """
  rows: dict[str, tuple[str, int, int]] = {}
  for path, x in flax.traverse_util.flatten_dict(dict(params)).items():
    name = re.sub(r'block_\d+', 'block_*', '/'.join(path))
    count = rows[name][2] if name in rows else 0
    rows[name] = (str(tuple(x.shape)), int(np.prod(x.shape)), count + 1)
  total = sum(size * count for _, size, count in rows.values())
  width = max(map(len, rows))
  lines = [
    f'{name:{width}}  {shape:>20} {size:>12,} x {count}'
    for name, (shape, size, count) in rows.items()
  ]
  return '\n'.join(['Parameters', *lines, f'{total:,} in all'])
