"""Measures one training step: images/s against the FLOPs it costs.

python -m benchmarks.train_step --variant=ViT-B_16 --batch=8 --dtype=float32

Prints a table and, with --json=FILE, writes the same numbers. Needs no data: the
images are random, on the device. `GFLOP/image` counts matrix products alone.
Where the peak of the device is unknown, a large product measures what it
reaches, and MFU is a part of that.
"""

from collections.abc import Callable, Sequence
import functools
import json
import statistics
import time

from absl import app
from absl import flags
import jax
import jax.numpy as jnp
import numpy as np
import optax

from vit_jax import flops
from vit_jax import models
from vit_jax import state as state_lib
from vit_jax import update
from vit_jax.configs import models as model_configs

_VARIANT = flags.DEFINE_list('variant', ['ViT-B_16'], 'Released models.')
_RESOLUTION = flags.DEFINE_list('resolution', ['224'], 'Image sides, pixels.')
_BATCH = flags.DEFINE_list('batch', ['8'], 'Images a step.')
_DTYPE = flags.DEFINE_list('dtype', ['float32', 'bfloat16'], 'Of the products.')
_REMAT = flags.DEFINE_bool('remat', False, 'Recompute activations.')
_STEPS = flags.DEFINE_integer('steps', 5, 'Measured steps of each.')
_JSON = flags.DEFINE_string('json', None, 'File for the numbers.')

_CLASSES = 1000


def make_step(
  variant: str, resolution: int, batch: int, dtype: str, remat: bool
) -> tuple[Callable[[], None], dict[str, float]]:
  """Compiles a step; returns a function that runs it and its static costs."""
  config = model_configs.get_model_config(variant).to_dict()
  config.get('transformer', config)['remat'] = remat
  model = models.from_config(config, num_classes=_CLASSES, dtype=dtype)
  shape = (resolution, resolution, 3)
  tx = optax.sgd(0.01, momentum=0.9)
  shapes = jax.eval_shape(lambda: models.init_params(model, shape))
  rng = np.random.default_rng(0)
  # Compiling the real initialisers takes longer than the measurement.
  params = jax.tree.map(
    lambda x: jnp.asarray(rng.normal(0, 0.02, x.shape), x.dtype), shapes
  )
  state = state_lib.TrainState(
    jnp.zeros((), jnp.int32), params, tx.init(params)
  )
  images = jnp.asarray(rng.uniform(-1, 1, (batch, *shape)), jnp.float32)
  labels = jnp.asarray(rng.integers(0, _CLASSES, batch), jnp.int32)
  data = {'image': images, 'label': labels}
  loss_fn = update.make_loss_fn(model, lambda key, images: images)
  step = functools.partial(update.train_step, loss_fn=loss_fn, tx=tx)
  key = jax.random.key(0)
  start = time.perf_counter()
  compiled = jax.jit(step, donate_argnums=0).lower(state, data, key).compile()
  memory = compiled.memory_analysis()
  costs = {
    'compile_s': time.perf_counter() - start,
    'gflop_per_image': flops.train_flops(model, shape) / 1e9,
    'temporary_gib': memory.temp_size_in_bytes / 2**30,
  }

  def run() -> None:
    nonlocal state
    state, metrics = compiled(state, data, key)
    jax.block_until_ready(metrics)

  return run, costs


def measured_peak(dtype: str, size: int = 4096) -> float:
  """Returns the FLOP/s of a large matrix product, float32 accumulation."""
  x = jnp.ones((size, size), dtype)
  product = jax.jit(lambda x: jnp.dot(x, x, preferred_element_type=jnp.float32))
  jax.block_until_ready(product(x))
  times = []
  for _ in range(5):
    start = time.perf_counter()
    jax.block_until_ready(product(x))
    times.append(time.perf_counter() - start)
  return 2 * size**3 / statistics.median(times)


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'Unexpected arguments: {argv[1:]}')
  cases = [
    {
      'variant': variant,
      'resolution': int(resolution),
      'batch': int(batch),
      'dtype': dtype,
      'remat': _REMAT.value,
    }
    for variant in _VARIANT.value
    for resolution in _RESOLUTION.value
    for batch in _BATCH.value
    for dtype in _DTYPE.value
  ]
  steps = [make_step(**case) for case in cases]
  for run, _ in steps:
    run()
  # In alternation, so that a slow minute of the machine slows all of them.
  times = [[] for _ in steps]
  for _ in range(_STEPS.value):
    for (run, _), seconds in zip(steps, times, strict=True):
      start = time.perf_counter()
      run()
      seconds.append(time.perf_counter() - start)
  rows = [
    _row(case, costs, statistics.median(seconds))
    for case, (_, costs), seconds in zip(cases, steps, times, strict=True)
  ]
  _show(rows)
  if _JSON.value:
    device = jax.devices()[0].device_kind
    with open(_JSON.value, 'w') as f:
      json.dump({'device': device, 'jax': jax.__version__, 'rows': rows}, f)


def _row(case, costs, seconds):
  images = case['batch'] / seconds
  flop_s = images * costs['gflop_per_image'] * 1e9
  peak = flops.peak_flops(jax.devices()[0]) or measured_peak(case['dtype'])
  return {
    **case,
    'images_s': images,
    'ms_step': 1e3 * seconds,
    'gflop_s': flop_s / 1e9,
    'mfu': flop_s / peak,
    **costs,
  }


def _show(rows):
  device = jax.devices()[0]
  print(f'{device.device_kind}, jax {jax.__version__}, medians')
  print(' '.join(f'{name:>15}' for name in rows[0]))
  for row in rows:
    cells = (
      f'{v:.4g}' if isinstance(v, float) else str(v) for v in row.values()
    )
    print(' '.join(f'{cell:>15}' for cell in cells))


if __name__ == '__main__':
  app.run(main)
