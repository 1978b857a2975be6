"""Settings to try when memory runs out."""

from collections.abc import Iterator, Mapping
import contextlib
from typing import Any

import jax
import ml_collections

from vit_jax.configs import common
from vit_jax.configs import images
from vit_jax.configs import spec
from vit_jax.runtime import errors
from vit_jax.runtime import sharding


def remats(model: Any) -> tuple[str, ...]:
  """Returns the values of `config.remat` that a model, a config, may have."""
  return common.REMAT[:1] if spec.encoder(model) is None else common.REMAT


def is_out_of_memory(error: Exception) -> bool:
  """Returns whether a compiler or a device ran out of memory."""
  return isinstance(
    error, jax.errors.JaxRuntimeError
  ) and 'RESOURCE_EXHAUSTED' in str(error)


@contextlib.contextmanager
def advice(config: ml_collections.ConfigDict) -> Iterator[None]:
  """Turns out-of-memory errors into `errors.UserError` with settings to try."""
  try:
    yield
  except jax.errors.JaxRuntimeError as e:
    if not is_out_of_memory(e):
      raise
    mesh = sharding.make_mesh(**config.mesh)
    settings = smaller(config, mesh.shape, jax.default_backend())
    options = [f'config.{setting}' for setting in settings]
    options.append(f'a smaller config.pp.crop than {config.pp.crop}')
    reason = errors.first_line(e).removeprefix('RESOURCE_EXHAUSTED: ')
    raise errors.UserError(
      f'Out of memory with a batch of {config.batch} in {config.accum_steps}'
      f' parts on {mesh.size} devices ({reason[:200]}). Try'
      f' {" or ".join(options)}; if it was an evaluation, a smaller'
      f' config.batch_eval. vit-jax plan with the same run file prints what fits.'
    ) from e


def smaller(
  config: ml_collections.ConfigDict, axes: Mapping[str, int], platform: str
) -> list[str]:
  """Returns changes such as 'accum_steps=16' that save memory, cheapest first.

  `axes` has the number of devices along each axis of the mesh; `platform` is
  'cpu', 'gpu' or 'tpu'.
  """
  parts, found = axes['data'] * axes['fsdp'], []
  least = images.fewest_in_a_part(config.pp)
  strongest = remats(config.model)[-1]
  if config.dtype == 'float32' and platform != 'cpu':
    found.append('dtype=bfloat16')
  if not spec.has_texts(config.model):  # Texts are compared with all images.
    in_all = config.batch // parts
    most = min(in_all, config.batch // least)
    steps = range(config.accum_steps + 1, most + 1)
    if more := [n for n in steps if in_all % n == 0]:
      found.append(f'accum_steps={more[0]}')
  if config.remat != strongest:
    found.append(f'remat={strongest}')
  fsdp = range(axes['fsdp'] + 1, parts + 1)
  if more := [n for n in fsdp if parts % n == 0]:
    data = parts // more[0]
    also = f' config.mesh.data={data}' if config.mesh.data != -1 else ''
    found.append(f'mesh.fsdp={more[0]}{also}')
  step = parts * config.accum_steps
  batch = config.batch // 2 // step * step
  if batch >= least * config.accum_steps:
    found.append(f'batch={batch}')
  return found
