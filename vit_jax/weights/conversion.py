"""Weights of one format written in another."""

import os
import pathlib
import textwrap

from absl import logging

from vit_jax import checkpoint
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import storage
from vit_jax.weights import array_files
from vit_jax.weights import extras
from vit_jax.weights import npz
from vit_jax.weights import record as weights_lib
from vit_jax.weights import to_huggingface
from vit_jax.weights import to_timm

_EXPORTS = {'huggingface': to_huggingface.export, 'timm': to_timm.export}
FORMATS = ('npz', *_EXPORTS)


def convert(
  weights: weights_lib.Weights,
  destination: str,
  to: str,
  dtype: str = 'float32',
) -> None:
  """Writes weights in another format, whole or not at all.

  Args:
    weights: of `checkpoint.read`.
    destination: with 'npz' a file, which has no room for labels and the rest;
      otherwise a folder, that `from_pretrained` of transformers opens, or
      `timm.create_model('local-dir:...', pretrained=True)`.
    to: 'npz', 'huggingface' or 'timm'.
    dtype: 'float32', or 'float16' for an `.npz` of half the size.

  Raises:
    errors.UserError: if the destination is there already, or its library has no
      such model.
  """
  path = storage.local_path(destination)
  if dtype != 'float32' and to != 'npz':
    raise errors.UserError(f'--dtype={dtype} is for --to=npz, not {to}.')
  if os.path.lexists(path):
    raise errors.UserError(f'{path} exists. Delete it or name another.')
  if to == 'npz':
    if path.suffix != '.npz':
      raise errors.UserError(f'{path} must end in .npz.')
    _warn_of_what_npz_loses(weights, path)
    try:
      path.parent.mkdir(parents=True, exist_ok=True)
      checkpoint.save(weights.params, path, dtype)
    except OSError as e:
      raise errors.UserError(f'{path} cannot be written: {e.strerror}.') from e
    return
  if weights.model is not None and weights.image_shape is None:
    raise errors.UserError(
      'The weights do not tell the size of their images: their patches are no'
      ' square grid. Give it with image_size=HEIGHT,WIDTH.'
    )
  arrays, contents = _EXPORTS[to](weights)
  with files.replaced_folder(path) as temporary:
    array_files.write_safetensors(arrays, temporary / array_files.SAFETENSORS)
    for name, content in contents.items():
      files.write_json(content, temporary / name)


def _warn_of_what_npz_loses(
  weights: weights_lib.Weights, path: pathlib.Path
) -> None:
  flat = weights_lib.flatten(weights.params)
  lost = extras.lost(weights, npz.from_flat(flat, path))
  (lost.get('model') or {}).pop('model_name', None)
  values = ', '.join(f'{name} {value}' for name, value in lost.items() if value)
  if values:
    logging.warning(
      '%s holds arrays alone. It loses %s.', path, textwrap.shorten(values, 500)
    )
