"""Adapts weights to another head, grid, patch size and channel count."""

from collections.abc import Mapping
import dataclasses
from typing import Any

from absl import logging
from jaxtyping import Float
import numpy as np

from vit_jax import models
from vit_jax.configs import models as model_configs
from vit_jax.configs import spec
from vit_jax.data import preprocessing as preprocessing_lib
from vit_jax.models import flops
from vit_jax.runtime import errors
from vit_jax.weights import checks
from vit_jax.weights import record as weights_lib
from vit_jax.weights import resized_positions

Params = dict[str, Any]


def adapt(
  weights: weights_lib.Weights,
  init_params: Mapping[str, Any],
  model_config: model_configs.ModelConfig,
  *,
  grid: tuple[int, int] | None = None,
  pretrained_grid: tuple[int, int] | None = None,
  adapt_channels: str = '',
  adapt_patches: bool = False,
) -> Params:
  """Adapts weights to another task and input (arXiv:2010.11929, Sec. 3.2).

  Takes the heads of `init_params`, drops `pre_logits` and `projection` if the
  new model has none, and resizes position embeddings.

  Args:
    weights: the weights to adapt.
    init_params: parameters of the new model; only shapes, except for the heads.
    model_config: config of the new model.
    grid: its (rows, columns) of patches; None for a square.
    pretrained_grid: the grid of weights whose image size is not known.
    adapt_channels: see `adapt_kernel`.
    adapt_patches: see `adapt_kernel`.

  Returns:
    Parameters with the names and shapes of `init_params`.

  Raises:
    errors.UserError: if the weights belong to another variant.
  """
  what, params = spec.of(model_config), dict(weights.params)
  if not what.representation_size:
    params.pop('pre_logits', None)
  if 'projection' not in init_params:
    params.pop('projection', None)
  for name in spec.HEADS:
    params.pop(name, None)
    if name in init_params:
      params[name] = dict(init_params[name])
  flat, want = weights_lib.flatten(params), weights_lib.flatten(init_params)
  with weights_lib.naming(weights.source):
    name = what.first_kernel
    if name in flat and flat[name].shape[-1] == want[name].shape[-1]:
      flat[name] = adapt_kernel(
        flat[name], want[name].shape, adapt_channels, adapt_patches
      )
    name = what.position_embeddings
    if name in flat and flat[name].ndim == 3:
      old_grid = weights.grid() if _knows_grid(weights) else pretrained_grid
      length = want[name].shape[1]
      _resize_posemb(flat, length, model_config, grid, old_grid)
    if (name := what.token_mixing) in flat:
      _check_mixer(flat[name].shape[0], want[name].shape[0])
    checks.check_fit(flat, want, what.name or 'the model')
  flat = {k: np.asarray(v, want[k].dtype) for k, v in flat.items()}
  return weights_lib.unflatten(flat)


def at_size(
  weights: weights_lib.Weights, size: tuple[int, int]
) -> weights_lib.Weights:
  """Returns the weights of a ViT or a pair for images of another (height, width).

  Raises:
    errors.UserError: if they cannot be resized, such as those of a Mixer, or do not
      tell their model.
  """
  model = weights.known_model()
  if spec.has_texts(model):
    return _pair_at_size(weights, size)
  what, flat = weights.spec, weights_lib.flatten(weights.params)
  length, grid = what.num_positions(size), what.grid(size)
  with weights_lib.naming(weights.source):
    if (name := what.position_embeddings) in flat:
      old_grid = weights.grid() if _knows_grid(weights) else None
      if old_grid is None and flat[name].shape[1] == length:
        old_grid = grid  # The caller says the size that nothing else tells.
      _resize_posemb(flat, length, model, grid, old_grid)
    elif (name := what.token_mixing) in flat:
      _check_mixer(flat[name].shape[0], length)
    resized = dataclasses.replace(
      weights,
      params=weights_lib.unflatten(flat),
      preprocessing=_preprocessing_at(weights.preprocessing, size),
    )
    checks.check(resized)
  return resized


def _pair_at_size(
  weights: weights_lib.Weights, size: tuple[int, int]
) -> weights_lib.Weights:
  """Returns two towers for images of another size; texts do not change."""
  tower, model = at_size(weights.image_tower(), size), weights.known_model()
  image = {**weights.params['img'], **tower.params}  # With its head.
  return dataclasses.replace(
    weights,
    params={**weights.params, 'img': image},
    model={**model, 'pp': {**model['pp'], 'size': size[0]}},
    preprocessing=tower.preprocessing,
  )


def _knows_grid(weights: weights_lib.Weights) -> bool:
  return weights.model is not None and weights.image_shape is not None


def _resize_posemb(
  flat: dict[str, Any],
  length: int,
  model: model_configs.ModelConfig,
  grid: tuple[int, int] | None,
  old_grid: tuple[int, int] | None,
) -> None:
  """Resizes the position embeddings in `flat`, and logs what that costs."""
  what = spec.of(model)
  prefix, posemb = what.num_positioned, flat[what.position_embeddings]
  flat[what.position_embeddings] = interpolate_posembed(
    posemb,
    length,
    prefix,
    grid=grid,
    old_grid=old_grid,
    method=what.posemb_resize,
  )
  old = _grid(posemb.shape[1] - prefix, old_grid, 'The checkpoint')
  new = _grid(length - prefix, grid, 'The model')
  if old == new:
    return
  channels = weights_lib.num_channels(weights_lib.unflatten(flat))
  cost = flops.forward_flops(
    models.from_config(model, num_classes=None),
    (*what.image_size(new), channels),
  )
  logging.info(
    'Position embeddings %dx%d -> %dx%d, %s tokens, about %.3g GFLOP an image.',
    *old,
    *new,
    f'{length - prefix + what.num_prefix_tokens:,}',
    cost / 1e9,
  )


def _preprocessing_at(
  old: preprocessing_lib.Preprocessing, size: tuple[int, int]
) -> preprocessing_lib.Preprocessing:
  """Returns a record for another size, with the same share cut off."""
  resize: Any = old.resize_test
  if old.size is None or resize is None:
    return dataclasses.replace(old, size=size)
  sides = list(zip(size, old.size, strict=True))
  if isinstance(resize, int):
    resize = max(_times(resize, *side) for side in sides)
  else:
    resize = tuple(_times(n, *s) for n, s in zip(resize, sides, strict=True))
  return dataclasses.replace(old, size=size, resize_test=resize)


def _times(length: int, new: int, old: int) -> int:
  """Returns `length * new / old`, rounded up exactly."""
  return -(-length * new // old)


def _check_mixer(have: int, want: int) -> None:
  if have != want:
    side = round(have**0.5)
    raise weights_lib.WeightsError(
      f'mixes {have} patches, but images of this size have {want}. The weights'
      f' of a Mixer cannot be resized: set config.pp.crop so that images have'
      f' {have} patches, such as {side} x {side}.'
    )


def adapt_kernel(
  kernel: np.ndarray,
  shape: tuple[int, ...],
  channels: str = '',
  patches: bool = False,
) -> np.ndarray:
  """Adapts the first kernel [h, w, C, D] to other channels and patches.

  Args:
    kernel: the kernel to adapt.
    shape: the new shape (h', w', C', D).
    channels: 'sum' gives each of C' channels the sum over the C, divided by C',
      so a grey image gives the same as its RGB copy. 'repeat' cycles through
      the C channels and scales by C / C'. '' refuses.
    patches: whether to resize to other patches, so that a patch gives what its
      copy, resized to (h, w) by means of areas, gave.
  """
  old, new = kernel.shape[2], shape[2]
  if old != new and not channels:
    raise weights_lib.WeightsError(
      f'takes images of {old} channels, these have {new}. Set'
      f' config.adapt_channels=sum or =repeat to adapt its first kernel.'
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
    raise weights_lib.WeightsError(
      f'has patches of {old_size}, but the model of {new_size}, (height, width).'
      f' Set config.adapt_patches=True to resize its first kernel.'
    )
  rows, columns = map(_means_of_areas, old_size, new_size)
  resized = np.einsum('hi,hwcd,wj->ijcd', rows, kernel, columns)
  return resized.astype(kernel.dtype)


def _means_of_areas(length: int, old: int) -> Float[np.ndarray, 'length old']:
  """Returns the weights that resize a row of `old` pixels to another length."""
  edges, old_edges = (np.arange(n + 1) / n for n in (length, old))
  ends = np.minimum(edges[1:, None], old_edges[1:])
  starts = np.maximum(edges[:-1, None], old_edges[:-1])
  return length * np.maximum(ends - starts, 0)


def interpolate_posembed(
  posemb: np.ndarray,
  num_tokens: int,
  has_class_token: bool | int,
  *,
  grid: tuple[int, int] | None = None,
  old_grid: tuple[int, int] | None = None,
  method: str = 'zoom',
) -> np.ndarray:
  """Resizes position embeddings to another patch grid (Sec. 3.2).

  Args:
    posemb: [1, L, D], those of the patches last.
    num_tokens: the new length, all tokens that have embeddings.
    has_class_token: whether the first embedding is copied unchanged, or how many
      are.
    grid: the new (rows, columns) of patches; None for a square.
    old_grid: (rows, columns) of `posemb`; None for a square.
    method: one of `resized_positions.METHODS`.

  Returns:
    [1, num_tokens, D].

  Raises:
    errors.UserError: if a number of tokens does not fit its grid.
  """
  prefix = int(has_class_token)
  old = _grid(posemb.shape[1] - prefix, old_grid, 'The checkpoint')
  new = _grid(num_tokens - prefix, grid, 'The model')
  if old == new:
    return np.asarray(posemb)
  tokens = np.asarray(posemb[0, prefix:]).reshape(*old, -1)
  tokens = resized_positions.resize(tokens, new, method)
  tokens = tokens.reshape(1, new[0] * new[1], -1)
  return np.concatenate([posemb[:, :prefix], tokens], axis=1)


def _grid(
  num_patches: int, grid: tuple[int, int] | None, who: str
) -> tuple[int, int]:
  side = round(max(num_patches, 0) ** 0.5)
  rows, columns = grid or (side, side)
  if rows * columns != num_patches or not num_patches:
    shape = f'a grid of {rows} x {columns}' if grid else 'a square grid'
    raise errors.UserError(
      f'{who} has {num_patches} position embeddings without the class token,'
      f' which is not {shape}. Does config.model.classifier fit the file? A grid'
      f' that is not square must be given.'
    )
  return rows, columns
