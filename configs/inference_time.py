"""Measures how many images a second a released model classifies.

python -m vit_jax.main --config=configs/inference_time.py --workdir=/tmp/speed \
  --config.model_name=ViT-B_16 --config.batch=64 --config.num_classes=1000 \
  --config.image_size=224
"""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
  config = ml_collections.ConfigDict()
  config.trainer = 'inference_time'
  # Key of MODEL_CONFIGS, or its short name.
  config.model_name = 'ViT-B_32'
  # Where the metrics go, in the workdir.
  config.log_dir = '.'
  # Steps measured, and steps before them.
  config.steps = 30
  config.initial_steps = 10
  # These three must be given: images a step over all devices, size of the
  # head, side of the images in pixels.
  config.batch = 0
  config.num_classes = 0
  config.image_size = 0
  # 'float32' or 'bfloat16'.
  config.dtype = 'float32'
  return config.lock()
