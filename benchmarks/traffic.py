"""Counts the bytes that a training step moves on an H100, without one.

python -m benchmarks.traffic --attention=cudnn

XLA compiles the step of ViT-B/16 as for an H100, so the processor of any machine will
do, with 'jax[cuda13]' and without a driver. Most of what is not a matrix product takes as
long as its bytes need, so that their number says what a change is worth before a GPU
measures it. XLA chooses no products by their speed here; --xla names further flags of it,
such as --xla=--xla_gpu_enable_triton_gemm=false, with which all products are cuBLAS's.
"""

from collections.abc import Mapping, Sequence
import os
from typing import Any

from absl import app
from absl import flags
import jax
from jax.experimental import topologies
import jax.numpy as jnp

from benchmarks import harness
from benchmarks import programs
from vit_jax import models
from vit_jax.models import arithmetic
from vit_jax.planning import hlo
from vit_jax.training import state as state_lib

_BATCH = 256

# As XLA describes an H100 with 80 GB.
_H100 = """
gpu_device_info {
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: 233472
  shared_memory_per_block_optin: 232448
  threads_per_core_limit: 2048
  core_count: 132
  fpus_per_core: 128
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000
  l2_cache_size: 52428800
  clock_rate_ghz: 1.98
  device_memory_size: 84929347584
  cuda_compute_capability { major: 9 }
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 15 }
runtime_version { major: 13 minor: 0 patch: 0 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""

# Kinds of instructions, by how their names begin.
_PRODUCTS = ('__cublas', 'gemm_fusion')
_ATTENTION = ('__cudnn',)


def compiled(case: harness.Case) -> jax.stages.Compiled:
  """Compiles a training step for an H100 that is not here."""
  _claim_cudnn()
  devices = topologies.get_topology_desc(
    'h100', 'cuda', target_config=_H100, topology='1x1x1'
  ).devices
  where = jax.sharding.SingleDeviceSharding(devices[0])
  shape = (case.resolution, case.resolution, 3)
  with arithmetic.compiling_for('gpu'):
    model = programs.jax_model(case)
    tx, step = programs.train_step(model)

    def inputs() -> tuple[Any, ...]:
      params = models.init_params(model, shape)
      state = state_lib.TrainState(
        jnp.zeros((), jnp.int32), params, tx.init(params)
      )
      batch = {
        'image': jnp.zeros((case.batch, *shape)),
        'label': jnp.zeros((case.batch,), jnp.int32),
      }
      return state, batch, jax.random.key(0)

    there = jax.tree.map(
      lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where),
      jax.eval_shape(inputs),
    )
    return jax.jit(step, donate_argnums=0).lower(*there).compile()


def _claim_cudnn() -> None:
  """Lets JAX trace cuDNN's attention, which it does only where a GPU is."""
  from jax._src.cudnn import fused_attention_stablehlo as cudnn

  cudnn.check_cudnn_version = lambda: 91500
  cudnn.check_compute_capability = lambda capability: True


def gigabytes(kinds: Mapping[str, hlo.Moved]) -> dict[str, float]:
  """Returns the GB of products, of attention and of the rest of a program."""
  found = {'products': 0.0, 'attention': 0.0, 'rest': 0.0}
  for kind, moved in kinds.items():
    part = 'rest'
    if kind.startswith(_PRODUCTS):
      part = 'products'
    elif kind.startswith(_ATTENTION):
      part = 'attention'
    found[part] += moved.bytes / 1e9
  return found


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'Unexpected arguments: {argv[1:]}')
  options = flags.FLAGS
  # JAX would ask the driver for its version.
  os.environ['JAX_SKIP_CUDA_CONSTRAINTS_CHECK'] = '1'
  given = os.environ.get('XLA_FLAGS', '')
  os.environ['XLA_FLAGS'] = f'{given} --xla_gpu_autotune_level=0 {options.xla}'
  program = compiled(
    harness.Case(
      library='vit_jax',
      variant='ViT-B_16',
      resolution=224,
      batch=_BATCH,
      dtype='bfloat16',
      attention=options.attention,
      policy=options.policy,
    )
  )
  kinds = hlo.moved(program.as_text())
  for kind, moved in sorted(kinds.items(), key=lambda item: -item[1].bytes)[
    :20
  ]:
    print(f'{moved.bytes / 1e9:8.2f} GB {moved.count:5} x {kind}')
  for part, size in gigabytes(kinds).items():
    print(f'{size:8.2f} GB in all: {part}')
  temporary = program.memory_analysis().temp_size_in_bytes / 2**30
  print(f'{temporary:8.2f} GiB of temporary memory')


if __name__ == '__main__':
  flags.DEFINE_enum('attention', 'xla', ['xla', 'cudnn'], 'Whose attention.')
  flags.DEFINE_string('policy', '', 'Changes of `programs.policy`.')
  flags.DEFINE_string('xla', '', 'Further flags of XLA.')
  app.run(main)
