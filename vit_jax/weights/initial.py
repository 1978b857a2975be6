"""Makes the first parameters of a run, pretrained or random."""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from vit_jax import models
from vit_jax.configs import spec
from vit_jax.models import blocks
from vit_jax.models import positions
from vit_jax.runtime import errors
from vit_jax.weights import adaptation
from vit_jax.weights import checks
from vit_jax.weights import record as weights_lib


def initial_params(
  config: ml_collections.ConfigDict,
  module: nn.Module,
  shapes: dict[str, Any],
  image_shape: tuple[int, int, int],
  weights: weights_lib.Weights | None = None,
) -> dict[str, Any]:
  """Returns the first parameters of a run.

  Args:
    config: settings.
    module: the model.
    shapes: shapes of its parameters.
    image_shape: [H, W, C] of its input.
    weights: pretrained weights; None for random parameters.
  """
  if weights is None:
    params = models.init_params(module, image_shape, config.seed)
  else:
    shapes = jax.eval_shape(blocks.unstack, shapes)
    heads = {
      name: _zero_head(shapes[name], config.head_bias_init)
      for name in spec.of(config.model).heads
    }
    params = adaptation.adapt(
      weights,
      {**shapes, **heads},
      config.model,
      grid=spec.of(config.model).grid(image_shape[:2]),
      adapt_channels=config.adapt_channels,
      adapt_patches=config.adapt_patches,
    )
    params = blocks.stack(params) if config.scan_layers else params
  if config.posemb == 'sincos2d':
    _fix_positions(config, params, image_shape, weights)
  return params


def _zero_head(shapes: dict[str, Any], bias: float) -> dict[str, Any]:
  head = {name: np.zeros(x.shape, np.float32) for name, x in shapes.items()}
  head['bias'] += bias
  return head


def _fix_positions(
  config: ml_collections.ConfigDict,
  params: dict[str, Any],
  image_shape: tuple[int, int, int],
  weights: weights_lib.Weights | None,
) -> None:
  """Sets position embeddings to fixed ones, and the class token's to 0.

  Refuses to replace learned ones, which would give wrong features.
  """
  what = spec.of(config.model)
  prefix = what.num_positioned
  if weights is not None:
    have = weights_lib.flatten(weights.params)[what.position_embeddings]
    if not positions.are_sincos2d(have[0, prefix:]):
      raise errors.UserError(
        f"config.posemb is 'sincos2d', but {weights.source} has learned"
        f" position embeddings, which fixed ones cannot replace. Set 'learn'."
      )
  embeddings = positions.sincos2d(what.grid(image_shape[:2]), what.width)
  tokens = ((prefix, 0), (0, 0))
  params['Transformer']['posembed_input'] = {
    'pos_embedding': jnp.asarray(np.pad(embeddings, tokens)[None])
  }


def lit_params(
  module: Any,
  weights: weights_lib.Weights,
  shapes: dict[str, Any],
  *,
  grid: tuple[int, int],
  seed: int = 0,
) -> dict[str, Any]:
  """Returns the first parameters of a LiT model.

  Args:
    module: the model; if it scans its blocks, they are stacked.
    weights: weights of a ViT, which becomes the image tower without its head, or
      of both towers. Missing parameters start at random.
    shapes: shapes of the parameters.
    grid: (rows, columns) of patches.
    seed: seeds the random parameters.

  Raises:
    errors.UserError: if the weights do not fit the model.
  """
  plain = models.unrolled(module)
  shapes = jax.eval_shape(blocks.unstack, shapes)
  params, head = _random_params(plain, seed), None
  if 'img' in weights.params:
    params |= weights.params
    head = params['img'].get('head')
    tower = weights.model and spec.image_tower(weights.model)
    weights = dataclasses.replace(weights, params=params['img'], model=tower)
  if 'b' not in shapes:  # Only the sigmoid loss has it.
    params.pop('b', None)
  want = dict(shapes['img'])
  if 'head' in want:
    want['head'] = head or _random_head(want['head'], seed)
  params['img'] = adaptation.adapt(weights, want, module.image, grid=grid)
  with weights_lib.naming(weights.source):
    checks.check_fit(
      weights_lib.flatten(params), weights_lib.flatten(shapes), 'the model'
    )
  params = jax.tree.map(lambda x, s: np.asarray(x, s.dtype), params, shapes)
  return params if plain is module else blocks.stack(params)


def _random_params(module: Any, seed: int) -> dict[str, Any]:
  # Only the text tower: the image tower comes from the file.
  tokens = jnp.zeros((1, module.pp['max_len']), jnp.int32)
  return module.init(jax.random.key(seed), tokens=tokens)['params']


def _random_head(shapes: dict[str, Any], seed: int) -> dict[str, Any]:
  # Not zeros like a ViT's: the direction of a zero embedding has no gradient.
  init = nn.initializers.lecun_normal()
  key = jax.random.fold_in(jax.random.key(seed), 1)
  return {
    'kernel': init(key, shapes['kernel'].shape),
    'bias': np.zeros(shapes['bias'].shape, np.float32),
  }
