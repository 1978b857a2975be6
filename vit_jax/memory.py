"""Running out of memory: one line that says which setting to change, and how."""

from collections.abc import Iterator
import contextlib

import jax
import ml_collections

from vit_jax import errors
from vit_jax import sharding

# Values of config.remat: less memory and more to compute from left to right.
REMAT = ('', 'dots_saveable', 'dots_with_no_batch_dims_saveable', 'full')


def is_out_of_memory(error: Exception) -> bool:
  """Whether a compiler or a device has run out of memory."""
  return isinstance(
    error, jax.errors.JaxRuntimeError
  ) and 'RESOURCE_EXHAUSTED' in str(error)


@contextlib.contextmanager
def advice(config: ml_collections.ConfigDict) -> Iterator[None]:
  """Turns running out of memory within it into advice.

  Raises:
    errors.UserError: with what to set instead.
  """
  try:
    yield
  except jax.errors.JaxRuntimeError as e:
    if not is_out_of_memory(e):
      raise
    mesh = sharding.make_mesh(**config.mesh)
    flags = ' or '.join(f'--config.{flag}' for flag in smaller(config, mesh))
    reason = str(e).split('\n')[0].removeprefix('RESOURCE_EXHAUSTED: ')
    raise errors.UserError(
      f'Out of memory with a batch of {config.batch} in {config.accum_steps}'
      f' parts on {mesh.size} devices ({reason[:200]}). Try {flags}; if it was'
      f' an evaluation, --config.batch_eval={_halved(config.batch_eval, mesh)}.'
      f' `python -m vit_jax.plan` with the same --config says what fits.'
    ) from e


def smaller(
  config: ml_collections.ConfigDict, mesh: jax.sharding.Mesh
) -> list[str]:
  """Returns settings that take less memory, what costs least first.

  Args:
    config: settings that take too much.
    mesh: of the devices.

  Returns:
    Like 'accum_steps=16', the smallest change each.
  """
  parts, found = sharding.parts(mesh), []
  contrastive = 'text_model' in (config.model or {})
  if config.dtype == 'float32' and mesh.devices.flat[0].platform != 'cpu':
    found.append('dtype=bfloat16')
  if not contrastive:  # It has neither.
    images = config.batch // parts
    steps = range(config.accum_steps + 1, images + 1)
    if more := [n for n in steps if images % n == 0]:
      found.append(f'accum_steps={more[0]}')
    if stronger := REMAT[REMAT.index(config.remat) + 1 :]:
      found.append(f'remat={stronger[-1]}')
  fsdp = range(mesh.shape['fsdp'] + 1, parts + 1)
  if more := [n for n in fsdp if parts % n == 0]:
    data = parts // more[0]
    also = f' --config.mesh.data={data}' if config.mesh.data != -1 else ''
    found.append(f'mesh.fsdp={more[0]}{also}')
  accum_steps = config.accum_steps
  if (batch := _halved(config.batch, mesh, accum_steps)) < config.batch:
    found.append(f'batch={batch}')
  return found


def _halved(batch: int, mesh: jax.sharding.Mesh, accum_steps: int = 1) -> int:
  step = sharding.parts(mesh) * accum_steps
  return max(batch // 2 // step * step, step)
