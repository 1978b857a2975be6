"""Official `.npz` checkpoints: load, adapt to another task, save."""

from collections.abc import Mapping
import os
import pathlib
import re
from typing import Any
import zipfile
import zlib

import flax.traverse_util
import jax.numpy as jnp
import numpy as np
import scipy.ndimage

from vit_jax import errors
from vit_jax import released
from vit_jax.configs import models as model_configs

Params = dict[str, Any]

_SIGNATURES = (  # What a wrong file starts with, and what it then is.
  (b'version https://git-lfs', 'a Git LFS pointer: run `git lfs pull`'),
  (b'<', 'an HTML or XML page, perhaps the error page of a download'),
  (b'\x80', 'a Python pickle, which is never opened: it could run code'),
  (b'\x93NUMPY', 'a single .npy array'),
  (b'\x89HDF', 'an HDF5 file'),
)

_GROUP_NORM = re.compile(r'gn(\d+|_root|_proj)')

# What NumPy raises at files that are cut, damaged or something else.
_READ_ERRORS = (
  AttributeError,
  EOFError,
  OSError,
  TypeError,
  ValueError,
  zipfile.BadZipFile,
  zlib.error,
)


def load(path: os.PathLike | str) -> Params:
  """Loads an official `.npz`, in the released or in today's Linen naming.

  Args:
    path: a file or a URL.

  Returns:
    A nested dict of NumPy arrays with Linen names.

  Raises:
    errors.UserError: if the file is absent, cut, or something else; the message
      says what it is.
  """
  path = released.find(str(path))
  try:
    with np.load(path, allow_pickle=False) as arrays:
      flat = {name: _as_array(arrays[name]) for name in arrays.files}
  except _READ_ERRORS as e:
    raise errors.UserError(
      f'{path} is not an .npz checkpoint: it is {_what_it_is(path)}.'
    ) from e
  names = set(flat)
  nested = [n for n in names if any(m.startswith(f'{n}/') for m in names)]
  if not flat or nested:
    raise errors.UserError(
      f'{path} is no checkpoint: it holds {len(flat)} arrays, of which'
      f' {nested[:3]} are also the names of modules.'
    )
  return to_linen(flax.traverse_util.unflatten_dict(flat, sep='/'))


def _as_array(array: np.ndarray) -> np.ndarray:
  # NumPy writes bfloat16 as two bytes without a meaning.
  return array.view(jnp.bfloat16) if array.dtype == 'V2' else array


def _what_it_is(path: pathlib.Path) -> str:
  size = path.stat().st_size
  if not size:
    return 'an empty file'
  with open(path, 'rb') as f:
    start = f.read(64)
  for signature, meaning in _SIGNATURES:
    if start.lstrip().startswith(signature):
      return meaning
  if start.startswith(b'PK'):
    if zipfile.is_zipfile(path):
      names = zipfile.ZipFile(path).namelist()
      if any(name.endswith('data.pkl') for name in names):
        return 'a PyTorch file, a pickle, which is never opened'
    return (
      f'cut or damaged after {size} bytes, or holds objects that are not'
      f' arrays. Fetch it again'
    )
  if start[8:9] == b'{':
    return 'a .safetensors file'
  return f'of an unknown kind (it starts with {start[:8]!r})'


def to_linen(params: Mapping[str, Any]) -> Params:
  """Renames modules as Linen does; Linen names pass unchanged.

  Before Linen, unnamed modules of one parent were numbered together
  (`LayerNorm_0`, `MultiHeadDotProductAttention_1`, `LayerNorm_2`); Linen counts
  each class alone. Modules given a name start in lower case and keep it.
  Group-norm arrays [1, 1, 1, C], as they were, become [C].
  """
  numbers: dict[str, list[int]] = {}
  for name in params:
    if match := re.fullmatch(r'([A-Z]\w*)_(\d+)', name):
      numbers.setdefault(match[1], []).append(int(match[2]))
  rename = {
    f'{cls}_{old}': f'{cls}_{new}'
    for cls, olds in numbers.items()
    for new, old in enumerate(sorted(olds))
  }
  linen = {}
  for name, x in params.items():
    if isinstance(x, Mapping):
      x = to_linen(x)
      if _GROUP_NORM.fullmatch(name):
        x = {key: np.reshape(array, -1) for key, array in x.items()}
    linen[rename.get(name, name)] = x
  return linen


def load_pretrained(
  *,
  pretrained_path: os.PathLike | str,
  init_params: Mapping[str, Any],
  model_config: model_configs.ModelConfig,
  grid: tuple[int, int] | None = None,
  pretrained_grid: tuple[int, int] | None = None,
) -> Params:
  """Loads a checkpoint and adapts it for fine-tuning (Sec. 3.2).

  The head is that of `init_params`. `pre_logits` is dropped where
  `representation_size` is None. Position embeddings are resized.

  Args:
    pretrained_path: a file or a URL.
    init_params: parameters of the new model; of all but the head only the
      shapes are read, so `jax.eval_shape` may have made them.
    model_config: as in `configs.models`.
    grid: (rows, columns) of patches wanted; None if it is square.
    pretrained_grid: the same of the checkpoint.

  Returns:
    Parameters with the names and shapes of `init_params`.

  Raises:
    errors.UserError: if the file is no checkpoint or of another variant.
  """
  params = load(pretrained_path)
  if model_config.get('representation_size') is None:
    params.pop('pre_logits', None)
  params.pop('head', None)
  if 'head' in init_params:
    params['head'] = dict(init_params['head'])

  flat = flax.traverse_util.flatten_dict(params, sep='/')
  want = flax.traverse_util.flatten_dict(dict(init_params), sep='/')
  name = 'Transformer/posembed_input/pos_embedding'
  if name in flat and name in want and flat[name].ndim == 3:
    flat[name] = interpolate_posembed(
      flat[name],
      want[name].shape[1],
      model_config.get('classifier') in ('token', 'token_unpooled'),
      grid=grid,
      old_grid=pretrained_grid,
    )
  check_fit(flat, want, f'{pretrained_path}', str(model_config['model_name']))
  flat = {k: np.asarray(v, want[k].dtype) for k, v in flat.items()}
  return flax.traverse_util.unflatten_dict(flat, sep='/')


def check_fit(
  have: Mapping[str, Any], want: Mapping[str, Any], path: str, name: str
) -> None:
  """Raises `errors.UserError` unless flat names and shapes are the same."""
  rows = []
  for key in sorted(have.keys() | want.keys()):
    if key not in have:
      rows.append(f'  {key}: missing, the model wants {want[key].shape}')
    elif key not in want:
      rows.append(f'  {key}: {have[key].shape}, the model has no such array')
    elif have[key].shape != want[key].shape:
      rows.append(
        f'  {key}: {have[key].shape}, the model wants {want[key].shape}'
      )
  if rows:
    raise errors.UserError(
      f'{path} does not fit {name}: {len(rows)} arrays differ'
      f' ({len(have)} in the file, {len(want)} in the model).\n'
      + '\n'.join(rows[:5])
      + '\nIs it another variant? See config.model and config.pretrained.'
    )


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


def save(params: Mapping[str, Any], path: os.PathLike | str) -> None:
  """Writes parameters as an official `.npz`, whole or not at all."""
  flat = flax.traverse_util.flatten_dict(dict(params), sep='/')
  path = pathlib.Path(path)
  temporary = path.with_name(path.name + '.tmp')
  with open(temporary, 'wb') as f:
    np.savez(f, **{k: np.asarray(v, np.float32) for k, v in flat.items()})
    f.flush()
    os.fsync(f.fileno())
  os.replace(temporary, path)
