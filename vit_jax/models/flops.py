"""FLOPs of a model; peak speed and memory of devices."""

from collections.abc import Iterable
import functools
import math
from typing import Any

import flax.linen as nn
import jax
from jax.extend import core

from vit_jax.configs import spec
from vit_jax.models import factory

# By the start of `jax.Device.device_kind`, longer names first: dense bfloat16
# FLOP/s of one device, from the vendors' data sheets, and GiB of memory that a
# program may use according to the compiler of libtpu 0.0.42, a little less than in
# the data sheets (16 GB of a v5e). GPUs are asked. The compiler sees a v4 as two
# devices with half of the memory each, its hosts as one.
_CHIPS = (
  ('TPU v2', 22.5e12, 7.48),
  ('TPU v3', 61.5e12, 15.48),
  ('TPU v4', 275e12, 15.25),
  ('TPU v5 lite', 197e12, 15.75),
  ('TPU v5', 459e12, 95.74),
  ('TPU v6 lite', 918e12, 31.25),
  ('NVIDIA H200', 989e12, None),
  ('NVIDIA H100 PCIe', 756e12, None),
  ('NVIDIA H100', 989e12, None),
  ('NVIDIA A100', 312e12, None),
  ('NVIDIA L40S', 362e12, None),
  ('NVIDIA L40', 181e12, None),
  ('NVIDIA L4', 121e12, None),
  ('Tesla V100', 125e12, None),
)


def _chip(device: jax.Device) -> tuple[float | None, float | None]:
  for kind, peak, gib in _CHIPS:
    if device.device_kind.startswith(kind):
      return peak, gib
  return None, None


def peak_flops(devices: Iterable[jax.Device]) -> float | None:
  """Returns the peak bfloat16 FLOP/s of each of equal devices, None if unknown."""
  devices = list(devices)
  peak = _chip(devices[0])[0]
  is_split = any(getattr(device, 'core_on_chip', 0) for device in devices)
  if peak and devices[0].device_kind == 'TPU v4' and is_split:
    return peak / 2
  return peak


def memory_bytes(device: jax.Device) -> int | None:
  """Returns the bytes a program may use on a device, None where unknown."""
  try:
    stats = device.memory_stats() or {}
  except jax.errors.JaxRuntimeError:  # A device that is compiled for, not here.
    stats = {}
  if 'bytes_limit' in stats:
    return stats['bytes_limit']
  gib = _chip(device)[1]
  return int(gib * 2**30) if gib else None


def forward_flops(model: nn.Module, image_shape: tuple[int, int, int]) -> float:
  """Returns the FLOPs of the matrix products of one image's forward pass.

  A multiplication and an addition count as two. B/16 at 224 px: 35 GFLOP. LiT
  models get an image and a text. Nothing is computed.
  """
  height, width, channels = image_shape  # May be a list, which has no hash.
  return _forward_flops(model, (height, width, channels))


def train_flops(model: nn.Module, image_shape: tuple[int, int, int]) -> float:
  """Returns the FLOPs of one image's training step: three forward passes.

  Patches that `patch_dropout` leaves out do not count. A locked image tower needs
  only one pass; other parameters count as trained.
  """
  height, width, channels = image_shape
  shape = height, width, channels
  flops = 3 * _forward_flops(model, shape, train=True)
  if spec.of_module(model).has_texts and model.locked:
    flops -= 2 * _forward_flops(model, shape, texts=False, train=True)
  return flops


@functools.lru_cache(maxsize=32)  # A run asks twice; tracing takes time.
def _forward_flops(
  model: nn.Module,
  image_shape: tuple[int, int, int],
  *,
  texts: bool = True,
  train: bool = False,
) -> float:
  inputs = jax.eval_shape(lambda: factory.example_inputs(model, image_shape))
  if not texts:
    del inputs['tokens']
  params = factory.abstract_params(model, image_shape)

  def forward(params, inputs, key):
    rngs = {'dropout': key}
    # The products inside cuDNN cannot be counted; asking for the attention weights
    # selects XLA's attention.
    return model.apply(
      {'params': params},
      **inputs,
      train=train,
      rngs=rngs,
      mutable='intermediates',
    )

  key = jax.eval_shape(lambda: jax.random.key(0))
  return count(jax.make_jaxpr(forward)(params, inputs, key).jaxpr)


def count(jaxpr: Any) -> float:
  """Returns the FLOPs of the matrix products of a jaxpr, including loops."""
  total = 0.0
  for equation in jaxpr.eqns:
    if equation.primitive.name == 'dot_general':
      (axes, _), _ = equation.params['dimension_numbers']
      shape = equation.invars[0].aval.shape
      size = math.prod(shape[i] for i in axes)
      total += 2.0 * equation.outvars[0].aval.size * size
    elif equation.primitive.name == 'conv_general_dilated':
      kernel = equation.invars[1].aval
      outputs = kernel.shape[equation.params['dimension_numbers'].rhs_spec[0]]
      size = kernel.size // outputs
      total += 2.0 * equation.outvars[0].aval.size * size
    repeats = equation.params.get('length', 1)  # Of a scan.
    for value in equation.params.values():
      if isinstance(value, core.ClosedJaxpr):
        value = value.jaxpr
      if isinstance(value, core.Jaxpr):
        total += repeats * count(value)
  return total
