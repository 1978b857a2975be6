"""The parameters that a run starts with, pretrained or random."""

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
from vit_jax.weights import record as weights_lib


def initial_params(
  config: ml_collections.ConfigDict,
  module: nn.Module,
  shapes: dict[str, Any],
  image_shape: tuple[int, int, int],
  weights: weights_lib.Weights | None = None,
) -> dict[str, Any]:
  """Returns the parameters to start with, pretrained or random.

  Args:
    config: settings.
    module: the model.
    shapes: of its parameters.
    image_shape: [H, W, C] of its input.
    weights: None for random ones.
  """
  if weights is None:
    params = models.init_params(module, image_shape, config.seed)
  else:
    shapes = jax.eval_shape(blocks.unstack, shapes)
    params = _pretrained_params(config, shapes, image_shape, weights)
    params = blocks.stack(params) if config.scan_layers else params
  if config.posemb == 'sincos2d':
    _fix_positions(config, params, image_shape, weights)
  return params


def _fix_positions(
  config: ml_collections.ConfigDict,
  params: dict[str, Any],
  image_shape: tuple[int, int, int],
  weights: weights_lib.Weights | None,
) -> None:
  """Sets position embeddings to fixed ones; that of the class token to 0.

  Learned ones of a file are not replaced: it would give wrong features.
  """
  what = spec.of(config.model)
  prefix = what.num_prefix_tokens
  if weights is not None:
    have = weights_lib.flatten(weights.params)[what.position_embeddings]
    if not positions.are_sincos2d(have[0, prefix:]):
      raise errors.UserError(
        f"config.posemb is 'sincos2d', but {config.pretrained} has learned"
        f" position embeddings, which fixed ones cannot replace. Set 'learn'."
      )
  embeddings = positions.sincos2d(what.grid(image_shape[:2]), what.width)
  tokens = ((prefix, 0), (0, 0))
  params['Transformer']['posembed_input'] = {
    'pos_embedding': jnp.asarray(np.pad(embeddings, tokens)[None])
  }


def _pretrained_params(
  config: ml_collections.ConfigDict,
  shapes: dict[str, Any],
  image_shape: tuple[int, int, int],
  weights: weights_lib.Weights,
) -> dict[str, Any]:
  head = {
    'kernel': np.zeros(shapes['head']['kernel'].shape, np.float32),
    'bias': np.full(
      shapes['head']['bias'].shape, config.head_bias_init, np.float32
    ),
  }
  return adaptation.adapt(
    weights,
    {**shapes, 'head': head},
    config.model,
    path=config.pretrained,
    grid=spec.of(config.model).grid(image_shape[:2]),
    adapt_channels=config.adapt_channels,
    adapt_patches=config.adapt_patches,
  )
