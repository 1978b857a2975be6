"""Weights made fit for another task and another input."""

from collections.abc import Mapping
import dataclasses
import json
import math
from typing import Any

from absl import logging
import jax
import numpy as np
import scipy.ndimage

from vit_jax import models
from vit_jax.configs import models as model_configs
from vit_jax.configs import spec
from vit_jax.data import preprocessing as preprocessing_lib
from vit_jax.models import flops
from vit_jax.runtime import errors
from vit_jax.weights import record as weights_lib

Params = dict[str, Any]


def adapt(
  weights: weights_lib.Weights,
  init_params: Mapping[str, Any],
  model_config: model_configs.ModelConfig,
  *,
  path: str,
  grid: tuple[int, int] | None = None,
  pretrained_grid: tuple[int, int] | None = None,
  adapt_channels: str = '',
  adapt_patches: bool = False,
) -> Params:
  """Adapts weights to another task and input (arXiv:2010.11929, Sec. 3.2).

  The head is that of `init_params`. `pre_logits` is dropped where
  `representation_size` is None. Position embeddings are resized.

  Args:
    weights: what was read.
    init_params: parameters of the new model; of all but the head only the
      shapes are read, so `jax.eval_shape` may have made them.
    model_config: as in `configs.models`.
    path: where the weights are from, for messages.
    grid: (rows, columns) of patches wanted; None if it is square.
    pretrained_grid: the same of the weights, where they do not tell.
    adapt_channels: how the first kernel is made for another number of
      channels: 'sum' or 'repeat', see `adapt_kernel`; '' refuses.
    adapt_patches: whether it is resized to another patch size.

  Returns:
    Parameters with the names and shapes of `init_params`.

  Raises:
    errors.UserError: if the weights are of another variant.
  """
  params = dict(weights.params)
  what = spec.of(model_config)
  if not what.representation_size:
    params.pop('pre_logits', None)
  params.pop('head', None)
  if 'head' in init_params:
    params['head'] = dict(init_params['head'])
  flat, want = weights_lib.flatten(params), weights_lib.flatten(init_params)

  name = what.first_kernel
  if name in flat and flat[name].shape[-1] == want[name].shape[-1]:
    flat[name] = adapt_kernel(
      flat[name], want[name].shape, path, adapt_channels, adapt_patches
    )
  name = what.position_embeddings
  if name in flat and flat[name].ndim == 3:
    _resize_posemb(
      flat,
      want[name].shape[1],
      model_config,
      grid=grid,
      old_grid=_pretrained_grid(weights) or pretrained_grid,
    )
  if (name := what.token_mixing) in flat:
    _check_mixer(flat[name].shape[0], want[name].shape[0], path)
  model = str(model_config['model_name'])
  weights_lib.check_fit(flat, want, path, model)
  flat = {k: np.asarray(v, want[k].dtype) for k, v in flat.items()}
  return weights_lib.unflatten(flat)


def at_size(
  weights: weights_lib.Weights, size: tuple[int, int], *, path: str
) -> weights_lib.Weights:
  """Returns weights for images of another (height, width).

  Args:
    weights: of a ViT or a Mixer.
    size: in pixels.
    path: where they are from, for messages.

  Raises:
    errors.UserError: if they cannot be made fit, as those of a Mixer.
  """
  if weights.model is None or spec.has_texts(weights.model):
    return weights  # What is refused elsewhere.
  resized = dataclasses.replace(
    weights, preprocessing=_preprocessing_at(weights.preprocessing, size)
  )
  what, flat = spec.of(weights.model), weights_lib.flatten(weights.params)
  grid = what.grid(size)
  if (name := what.position_embeddings) in flat:
    num_tokens = what.num_tokens(size)
    fits = flat[name].shape[1] == num_tokens
    _resize_posemb(
      flat,
      num_tokens,
      weights.model,
      grid=grid,
      # Where the size was not known, it is what was given, if that fits.
      old_grid=_pretrained_grid(weights) or (grid if fits else None),
    )
  elif (name := what.token_mixing) in flat:
    _check_mixer(flat[name].shape[0], what.num_tokens(size), path)
  resized = dataclasses.replace(resized, params=weights_lib.unflatten(flat))
  weights_lib.check(resized, path)
  return resized


def _resize_posemb(
  flat: dict[str, Any],
  num_tokens: int,
  model: model_configs.ModelConfig,
  *,
  grid: tuple[int, int] | None,
  old_grid: tuple[int, int] | None,
) -> None:
  """Resizes the position embeddings in `flat`, and logs what that costs."""
  what = spec.of(model)
  prefix, posemb = what.num_prefix_tokens, flat[what.position_embeddings]
  flat[what.position_embeddings] = interpolate_posembed(
    posemb, num_tokens, bool(prefix), grid=grid, old_grid=old_grid
  )
  old = _grid(posemb.shape[1] - prefix, old_grid, 'The checkpoint')
  new = _grid(num_tokens - prefix, grid, 'The model')
  if old == new:
    return
  model = json.loads(json.dumps(dict(model), default=dict))
  channels = weights_lib.num_channels(weights_lib.unflatten(flat))
  cost = flops.forward_flops(
    models.from_config(model, num_classes=None),
    (*what.image_size(new), channels),
  )
  logging.info(
    'Position embeddings %dx%d -> %dx%d, %s tokens, about %.3g GFLOP an image.',
    *old,
    *new,
    f'{num_tokens:,}',
    cost / 1e9,
  )


def _preprocessing_at(
  old: preprocessing_lib.Preprocessing, size: tuple[int, int]
) -> preprocessing_lib.Preprocessing:
  """Returns a record for another size, whose middle is the same share."""
  resize = old.resize_test
  if old.size is None or resize is None:
    return dataclasses.replace(old, size=size)
  ratios = [new / n for new, n in zip(size, old.size, strict=True)]
  if isinstance(resize, int):
    resize = math.ceil(resize * max(ratios))
  else:
    resize = tuple(
      math.ceil(n * ratio) for n, ratio in zip(resize, ratios, strict=True)
    )
  return dataclasses.replace(old, size=size, resize_test=resize)


def _pretrained_grid(weights: weights_lib.Weights) -> tuple[int, int] | None:
  if weights.model is None or weights.image_shape is None:
    return None
  return weights_lib.grid(weights)


def _check_mixer(have: int, want: int, path: str) -> None:
  if have != want:
    raise errors.UserError(
      f'{path} mixes {have} patches and images of this size have {want}. The'
      f' weights of a Mixer cannot be resized: set config.pp.crop so that there'
      f' are {have}, {round(have**0.5)} x {round(have**0.5)} say.'
    )


def adapt_kernel(
  kernel: np.ndarray,
  shape: tuple[int, ...],
  path: str,
  channels: str = '',
  patches: bool = False,
) -> np.ndarray:
  """Adapts the first convolution to other channels and patches.

  Args:
    kernel: [h, w, C, D].
    shape: wanted, (h', w', C', D).
    path: where it is from, for messages.
    channels: 'sum' gives each of C' channels the sum over the C, divided by C':
      with C' = 1 a grey image gives what it gave as RGB. 'repeat' goes round
      the C channels and scales by C / C'. '' refuses.
    patches: whether to resize, bilinearly, to other patches; scaled so that an
      even area gives what it gave.

  Raises:
    errors.UserError: if a change is needed that was not asked for.
  """
  old, new = kernel.shape[2], shape[2]
  if old != new and not channels:
    raise errors.UserError(
      f'{path} takes images of {old} channels, these have {new}. Set'
      f' config.adapt_channels=sum or =repeat to make its first kernel fit.'
    )
  if old != new and channels == 'sum':
    total = kernel.sum(axis=2, keepdims=True) / new
    kernel = np.repeat(total, new, axis=2)
  elif old != new:
    kernel = kernel[:, :, np.arange(new) % old] * (old / new)
  old_size, new_size = kernel.shape[:2], tuple(shape[:2])
  if old_size == new_size:
    return kernel
  if not patches:
    raise errors.UserError(
      f'{path} has patches of {old_size}, the model of {new_size}, (height,'
      f' width). Set config.adapt_patches=True to resize its first kernel.'
    )
  resized = jax.image.resize(kernel, (*new_size, *kernel.shape[2:]), 'bilinear')
  scale = np.prod(old_size) / np.prod(new_size)
  return np.asarray(resized, kernel.dtype) * np.asarray(scale, kernel.dtype)


def interpolate_posembed(
  posemb: np.ndarray,
  num_tokens: int,
  has_class_token: bool,
  *,
  grid: tuple[int, int] | None = None,
  old_grid: tuple[int, int] | None = None,
) -> np.ndarray:
  """Resizes position embeddings to another patch grid (Sec. 3.2).

  Args:
    posemb: [1, L, D], class token first.
    num_tokens: length wanted, the class token included.
    has_class_token: whether to copy the first embedding unchanged.
    grid: (rows, columns) wanted, in patches; None for a square.
    old_grid: (rows, columns) of `posemb`; None for a square.

  Returns:
    [1, num_tokens, D], by `scipy.ndimage.zoom`: its corners are aligned, as in
    the official code; those of `jax.image.resize` are not.

  Raises:
    errors.UserError: if a number of tokens does not fit its grid.
  """
  prefix = int(has_class_token)
  old = _grid(posemb.shape[1] - prefix, old_grid, 'The checkpoint')
  new = _grid(num_tokens - prefix, grid, 'The model')
  if old == new:
    return np.asarray(posemb)
  tokens = np.asarray(posemb[0, prefix:]).reshape(*old, -1)
  zoom = (new[0] / old[0], new[1] / old[1], 1)
  tokens = scipy.ndimage.zoom(tokens, zoom, order=1).reshape(
    1, new[0] * new[1], -1
  )
  return np.concatenate([posemb[:, :prefix], tokens], axis=1)


def _grid(
  num_patches: int, grid: tuple[int, int] | None, who: str
) -> tuple[int, int]:
  side = round(max(num_patches, 0) ** 0.5)
  rows, columns = grid or (side, side)
  if rows * columns != num_patches or not num_patches:
    shape = f'a grid of {rows} x {columns}' if grid else 'a square grid'
    raise errors.UserError(
      f'{who} has {num_patches} position embeddings besides the class token,'
      f' which is not {shape}. Does config.model.classifier fit the file? Grids'
      f' that are not square must be given.'
    )
  return rows, columns
