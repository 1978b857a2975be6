"""Floating-point operations of a Vision Transformer, and what devices can do."""

import jax

from vit_jax import models
from vit_jax.configs import models as model_configs

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


def forward_flops(
  model_config: model_configs.ModelConfig,
  image_shape: tuple[int, int, int],
  num_classes: int | None,
) -> float:
  """Returns the FLOPs of one image's forward pass, of matrix products alone.

  A multiplication and an addition count as two. B/16 at 224 px: 35 GFLOP.

  Args:
    model_config: as in `configs.models`.
    image_shape: (H, W, C) in pixels.
    num_classes: size of the head; None for no head.
  """
  patch = tuple(model_config['patches']['size'])
  rows, columns = models.patch_grid(image_shape[:2], patch)
  num_patches = rows * columns
  length = num_patches + (
    model_config['classifier'] in ('token', 'token_unpooled')
  )
  width = model_config['hidden_size']
  transformer = model_config['transformer']

  embedding = num_patches * patch[0] * patch[1] * image_shape[2] * width
  projections = 4 * length * width**2
  attention = 2 * length**2 * width
  mlp = 2 * length * width * transformer['mlp_dim']
  encoder = transformer['num_layers'] * (projections + attention + mlp)
  representation = model_config.get('representation_size')
  head = (representation or width) * (num_classes or 0)
  head += width * (representation or 0)
  return 2.0 * (embedding + encoder + head)


def train_flops(
  model_config: model_configs.ModelConfig,
  image_shape: tuple[int, int, int],
  num_classes: int | None,
) -> float:
  """Returns the FLOPs of one image's training step: three forward passes."""
  return 3 * forward_flops(model_config, image_shape, num_classes)
