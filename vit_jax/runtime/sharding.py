"""One mesh for a laptop and a pod: where parameters and batches are.

Axes: `data` splits the batch, `fsdp` the batch and the parameters, `model` the
heads and the MLP. One device is a mesh of size 1 and runs the same code.
"""

import collections
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
import contextlib
import functools
import math
import re
from typing import Any

import jax
from jax.experimental import multihost_utils
from jax.sharding import AbstractMesh
from jax.sharding import AxisType
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array
import numpy as np

from vit_jax.runtime import errors

# First match wins; names are those of the official checkpoints. Specs apply to the
# last dimensions: scanned blocks have a leading axis for layers.
RULES = (
  (r'MlpBlock_\d+/(Dense_0|gate)/kernel$', P('fsdp', 'model')),
  (r'MlpBlock_\d+/Dense_1/kernel$', P('model', 'fsdp')),
  (r'_mixing/Dense_0/kernel$', P('fsdp', 'model')),
  (r'_mixing/Dense_1/kernel$', P('model', 'fsdp')),
  # BERT's kernels have no axis for the heads.
  (r'attention_layer/(query|key|value)/kernel$', P('fsdp', 'model')),
  (r'(attention|mlp)_block/dense_layer/kernel$', P('model', 'fsdp')),
  (r'mlp/dense_layer/kernel$', P('fsdp', 'model')),
  (r'(query|key|value)/kernel$', P('fsdp', 'model', None)),
  (r'out/kernel$', P('model', None, 'fsdp')),
  (r'(head|head_dist|pre_logits|projection)/kernel$', P('fsdp', 'model')),
  # Patches and convolutions; then tables of words and positions.
  (r'(embedding|stem|conv\w*)/kernel$', P(None, None, None, 'fsdp')),
  (r'/embedding$', P(None, 'fsdp')),
  (r'', P()),
)

BATCH = P(('data', 'fsdp'))


def make_mesh(
  data: int = -1,
  fsdp: int = 1,
  model: int = 1,
  devices: Sequence[jax.Device] | None = None,
) -> Mesh:
  """Returns a mesh of `devices`, or of all devices of all hosts.

  `data`, `fsdp` and `model` are the sizes of the axes; one of them may be -1, the
  rest. Raises `errors.UserError` if their product is not the number of devices.
  """
  devices = jax.devices() if devices is None else devices
  sizes, total = [data, fsdp, model], len(devices)
  if sizes.count(-1) == 1 and 0 not in sizes:
    known = -math.prod(sizes)
    sizes = [total // known if s == -1 else s for s in sizes]
  if math.prod(sizes) != total or min(sizes) < 1:
    raise errors.UserError(
      f'config.mesh is data {data}, fsdp {fsdp}, model {model}, whose product'
      f' must be the {total} devices there are; one may be -1, the rest.'
    )
  # Linen needs axes whose sharding the compiler propagates.
  return jax.make_mesh(
    tuple(sizes),
    ('data', 'fsdp', 'model'),
    axis_types=(AxisType.Auto,) * 3,
    devices=devices,
  )


def place(mesh: Mesh | AbstractMesh, params: Any) -> Any:
  """Returns shapes and dtypes of parameters with the shardings of `RULES`.

  Replicates dimensions that are not divisible by the size of their axis.
  """

  def placed(path: tuple[Any, ...], x: Any) -> jax.ShapeDtypeStruct:
    name = jax.tree_util.keystr(path, simple=True, separator='/')
    spec = next(spec for pattern, spec in RULES if re.search(pattern, name))
    spec = (None,) * (x.ndim - len(spec)) + tuple(spec)
    axes = [
      axis if axis and size % mesh.shape[axis] == 0 else None
      for size, axis in zip(x.shape, spec, strict=True)
    ]
    sharding = NamedSharding(mesh, P(*axes))
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)

  return jax.tree_util.tree_map_with_path(placed, params)


def batch_sharding(mesh: Mesh) -> NamedSharding:
  """Returns the sharding of a batch: its first axis over `data` and `fsdp`."""
  return NamedSharding(mesh, BATCH)


def in_mesh(mesh: Mesh, function: Callable[..., Any]) -> Callable[..., Any]:
  """Returns the function, to be jitted, in the context of the mesh."""

  # Profiles show its name.
  @functools.wraps(getattr(function, 'func', function))
  def call(*args: Any) -> Any:
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
      return function(*args)

  return call


def split_batch(x: Array) -> Array:
  """Tells the compiler to split the first axis like a batch.

  Otherwise it may split activations like parameters, over `fsdp`, and sum them
  between devices, which sends far more than the parameters. Does nothing outside
  of `in_mesh`.
  """
  mesh = jax.sharding.get_abstract_mesh()
  if 'fsdp' not in mesh.axis_names or x.shape[0] % parts(mesh):
    return x
  return jax.lax.with_sharding_constraint(x, BATCH)


def on_parts(function: Callable[[Array], Array], x: Array) -> Array:
  """Applies a function to the part of a batch that each device has.

  It must work on parts, and keep their shape. Applied to the whole, an operation that
  XLA cannot split would gather the batch. A batch that is not split is left alone.
  """
  mesh = jax.sharding.get_abstract_mesh()
  if 'fsdp' not in mesh.axis_names:
    return function(x)
  if x.shape[0] % parts(mesh):
    return x
  return jax.shard_map(
    function, in_specs=BATCH, out_specs=BATCH, axis_names={'data', 'fsdp'}
  )(x)


def replicated(mesh: Mesh | AbstractMesh) -> NamedSharding:
  """Returns the sharding that puts a copy on every device."""
  return NamedSharding(mesh, P())


def parts(mesh: Mesh | AbstractMesh) -> int:
  """Returns the number of parts that a batch is split into."""
  return mesh.shape['data'] * mesh.shape['fsdp']


def _rows(mesh: Mesh, batch_size: int) -> dict[int, tuple[int, ...]]:
  """Returns the first rows of the parts of a batch that each process holds."""
  rows = collections.defaultdict[int, set[int]](set)
  indices = batch_sharding(mesh).devices_indices_map((batch_size,))
  device: Any
  for device, index in indices.items():
    rows[device.process_index].add(_start(index))
  return {process: tuple(sorted(r)) for process, r in rows.items()}


def _start(index: tuple[slice, ...] | None) -> int:
  return (index[0].start or 0) if index else 0


def data_shard(mesh: Mesh, batch_size: int) -> tuple[int, int]:
  """Returns (index, count) of the part of each batch that this host reads.

  Raises `errors.UserError` if the batch cannot be split over the devices.
  """
  count = parts(mesh)
  if batch_size % count:
    raise errors.UserError(
      f'A batch of {batch_size} cannot be split over {count} devices. Choose a'
      f' multiple of {count}.'
    )
  rows = _rows(mesh, batch_size)
  # Hosts along the `model` axis hold the same rows and read the same part.
  groups = sorted(set(rows.values()))
  return groups.index(rows[jax.process_index()]), len(groups)


def put_batches(
  batches: Iterable[dict[str, np.ndarray]], mesh: Mesh, batch_size: int
) -> Generator[dict[str, jax.Array], None, None]:
  """Makes global arrays [batch_size, ...] from the parts that the hosts read.

  Sends the next batch to the devices before the current one is used.
  """
  sharding = batch_sharding(mesh)
  rows = _rows(mesh, batch_size)[jax.process_index()]
  offsets = {row: i for i, row in enumerate(rows)}

  def put(x: np.ndarray) -> jax.Array:
    size = len(x) // len(rows)

    def part(index: tuple[slice, ...] | None) -> np.ndarray:
      start = offsets[_start(index)] * size
      return x[start : start + size]

    shape = (batch_size, *x.shape[1:])
    return jax.make_array_from_callback(shape, sharding, part)

  ahead = None
  for batch in batches:
    placed = jax.tree.map(put, batch)
    if ahead is not None:
      yield ahead
    ahead = placed
  if ahead is not None:
    yield ahead


@contextlib.contextmanager
def first_process_first() -> Iterator[None]:
  """Lets process 0 run first, so that it alone downloads to a shared folder."""
  hosts = jax.process_count() > 1
  if hosts and jax.process_index() > 0:
    multihost_utils.sync_global_devices('first_process_first')
  try:
    yield
  finally:  # If it fails, the others try too and report it themselves.
    if hosts and jax.process_index() == 0:
      multihost_utils.sync_global_devices('first_process_first')
