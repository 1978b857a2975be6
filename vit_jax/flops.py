"""Floating-point operations of a model, and what devices can do."""

import math
from typing import Any

import flax.linen as nn
import jax
from jax.extend import core
import jax.numpy as jnp

from vit_jax import models

# Dense bfloat16 FLOP/s of one device, from the vendors' data sheets, by the
# start of `jax.Device.device_kind`; longer names first.
_PEAK_FLOPS = (
  ('TPU v2', 22.5e12),
  ('TPU v3', 61.5e12),
  ('TPU v4', 275e12),
  ('TPU v5 lite', 197e12),
  ('TPU v5', 459e12),
  ('TPU v6 lite', 918e12),
  ('NVIDIA H200', 989e12),
  ('NVIDIA H100 PCIe', 756e12),
  ('NVIDIA H100', 989e12),
  ('NVIDIA A100', 312e12),
  ('NVIDIA L40S', 362e12),
  ('NVIDIA L4', 121e12),
  ('Tesla V100', 125e12),
)


def peak_flops(device: jax.Device) -> float | None:
  """Returns the peak bfloat16 FLOP/s of a device, None where unknown."""
  for kind, peak in _PEAK_FLOPS:
    if device.device_kind.startswith(kind):
      return peak
  return None


def forward_flops(model: nn.Module, image_shape: tuple[int, int, int]) -> float:
  """Returns the FLOPs of one image's forward pass, of matrix products alone.

  A multiplication and an addition count as two. B/16 at 224 px: 35 GFLOP.

  Args:
    model: any of `models`, LiT with a text for the image; nothing is computed.
    image_shape: (H, W, C) in pixels.
  """
  inputs = jax.eval_shape(lambda: models.example_inputs(model, image_shape))
  return _forward_flops(model, image_shape, inputs)


def train_flops(model: nn.Module, image_shape: tuple[int, int, int]) -> float:
  """Returns the FLOPs of one image's training step: three forward passes.

  Only one of a locked image tower.
  """
  flops = 3 * forward_flops(model, image_shape)
  if isinstance(model, models.LitModel):
    images = jax.ShapeDtypeStruct((1, *image_shape), jnp.float32)
    flops -= 2 * _forward_flops(model, image_shape, {'images': images})
  return flops


def _forward_flops(
  model: nn.Module, image_shape: tuple[int, int, int], inputs: dict[str, Any]
) -> float:
  params = jax.eval_shape(lambda: models.init_params(model, image_shape))

  def forward(params, inputs):
    return model.apply({'params': params}, **inputs, train=False)

  return _count(jax.make_jaxpr(forward)(params, inputs).jaxpr)


def _count(jaxpr: Any) -> float:
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
        total += repeats * _count(value)
  return total
