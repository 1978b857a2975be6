"""The process of some jobs of `benchmarks.accelerator`: measures, prints rows.

The argument is a JSON list of jobs. For each, it prints a line of JSON when it
begins and a line with its row, or with the error, when it ends.
"""

from collections.abc import Callable
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks import accelerator_runs
from benchmarks import harness
from benchmarks import machine as machine_lib
from benchmarks import programs
from vit_jax.models import arithmetic
from vit_jax.models import normalization
from vit_jax.runtime import errors

Row = dict[str, Any]

_ROUNDS = 5
_ROUND_SECONDS = 0.5


def timed(program: harness.Program) -> Row:
  """Returns the median time of a step, and the fastest and slowest round."""
  for _ in range(2):
    program.run()
  steps = max(1, round(_ROUND_SECONDS / max(program.seconds(1), 1e-6)))
  steps = min(steps, 200)
  rounds = [1e3 * program.seconds(steps) for _ in range(_ROUNDS)]
  return {
    'ms': statistics.median(rounds),
    'ms_fastest': min(rounds),
    'ms_slowest': max(rounds),
    'steps': steps * _ROUNDS,
  }


def machine() -> Row:
  """Returns the device, the driver, the processor and the versions of packages."""
  try:
    command = ['nvidia-smi', '--query-gpu=name,driver_version,clocks.max.sm']
    smi = subprocess.run(
      [*command, '--format=csv,noheader'],
      capture_output=True,
      text=True,
      check=True,
    ).stdout.strip()
  except (OSError, subprocess.CalledProcessError):
    smi = ''
  return {**machine_lib.describe(), 'nvidia_smi': smi}


def product(size: int, results: str) -> Row:
  """Multiplies two large bfloat16 matrices, the ceiling of a model's products."""
  x = jnp.ones((size, size), jnp.bfloat16)
  function = jax.jit(
    lambda x: jnp.dot(x, x, preferred_element_type=jnp.dtype(results))
  )
  row = timed(_program(function, x))
  return {**row, 'tflop_s': 2 * size**3 / row['ms'] / 1e9}


def copy(mib: int) -> Row:
  """Reads and writes an array, the ceiling of elementwise work."""
  x = jnp.zeros((mib << 18,), jnp.float32)
  row = timed(_program(jax.jit(lambda x: x + 1), x))
  return {**row, 'tb_s': 2 * x.nbytes / row['ms'] / 1e9}


def attention(
  tokens: int,
  padded: int,
  batch: int,
  heads: int,
  width: int,
  implementation: str,
  backward: bool,
) -> Row:
  """Attends `tokens` tokens in arrays of `padded`; the rest is masked."""
  shape = (batch, padded, heads, width)
  q, k, v = (
    jax.random.normal(jax.random.key(i), shape, jnp.bfloat16) for i in range(3)
  )
  lengths = None
  if padded != tokens:
    lengths = jnp.full((batch,), tokens, jnp.int32)

  def attend(q, k, v):
    if implementation == 'ours':
      return _ours(q, k, v)
    return jax.nn.dot_product_attention(
      q,
      k,
      v,
      query_seq_lengths=lengths,
      key_value_seq_lengths=lengths,
      implementation=implementation,
    )

  def total(q, k, v):
    return jnp.sum(attend(q, k, v).astype(jnp.float32))

  function = jax.grad(total, (0, 1, 2)) if backward else attend
  row = timed(_program(jax.jit(function), q, k, v))
  products = 6 if backward else 2
  flop = products * 2 * batch * heads * tokens**2 * width
  return {**row, 'tflop_s': flop / row['ms'] / 1e9}


def _ours(q, k, v):
  """The 'xla' attention of `models.attention`."""
  logits = arithmetic.einsum('blnh,bmnh->bnlm', q, k, 'bfloat16')
  weights = normalization.softmax(logits / q.shape[-1] ** 0.5, 'bfloat16')
  y = arithmetic.einsum('bnlm,bmnh->blnh', weights, v, 'bfloat16')
  return arithmetic.as_activation(y, 'bfloat16')


def _program(function: Callable[..., Any], *inputs: Any) -> harness.Program:
  compiled = jax.jit(function).lower(*inputs).compile()
  return harness.Program(lambda: compiled(*inputs), 0.0, 0.0)


def model(step: str, **case: Any) -> Row:
  """Measures a training step or a forward pass of a model."""
  what = harness.Case(**case)
  if what.library in harness.TORCH_LIBRARIES:
    # JAX only counts FLOPs here and must not reserve the GPU's memory.
    os.environ['XLA_PYTHON_CLIENT_PREALLOCATE'] = 'false'
  program = {'train': programs.train, 'inference': programs.inference}[step](
    what
  )
  row = timed(program)
  images = what.batch / row['ms'] * 1e3
  return {
    **row,
    'images_s': images,
    'tflop_s': images * program.gflop_per_image / 1e3,
    'compile_s': program.compile_s,
    'temporary_gib': program.temporary_gib,
    'peak_gib': _peak_gib(what.library),
  }


def _peak_gib(library: str) -> float | None:
  if library in harness.TORCH_LIBRARIES:
    import torch  # Peers are not installed everywhere.

    if not torch.cuda.is_available():
      return None
    return torch.cuda.max_memory_allocated() / 2**30
  return machine_lib.peak_gib()


KINDS: dict[str, Callable[..., Row]] = {
  'machine': machine,
  'product': product,
  'copy': copy,
  'attention': attention,
  'model': model,
  'photographs': accelerator_runs.photographs,
  'resume': accelerator_runs.resume,
  'trace': accelerator_runs.trace,
}


def main(jobs: list[dict[str, Any]]) -> None:
  for job in jobs:
    print(json.dumps({'begun': job['name']}), flush=True)
    start = time.perf_counter()
    try:
      row = KINDS[job['kind']](**job['what'])
    except Exception as e:  # Libraries and drivers each raise their own.
      row = {'error': errors.first_line(e)[:300] or type(e).__name__}
    row['whole_s'] = time.perf_counter() - start
    print(json.dumps({'name': job['name'], 'row': row}), flush=True)


if __name__ == '__main__':
  os.environ.setdefault('OMP_WAIT_POLICY', 'passive')
  main(json.loads(sys.argv[1]))
