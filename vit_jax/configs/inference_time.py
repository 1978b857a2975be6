"""Measures how many images per second a released model classifies.

python -m vit_jax.main --config=configs/inference_time.py --workdir=/tmp/speed \
  --config.model_name=ViT-B_16 --config.batch=64 --config.num_classes=1000 \
  --config.image_size=224

Fields and defaults are those of the official inference_time.py, whose `train` should
have been `trainer`. `dtype` and `pretrained_dir` are added.
"""

import ml_collections
from ml_collections.config_dict import placeholder


def get_config() -> ml_collections.ConfigDict:
  """Returns the config; batch, num_classes and image_size must be set."""
  config = ml_collections.ConfigDict()
  config.trainer = 'inference_time'
  # Key of MODEL_CONFIGS, or its short name.
  config.model_name = 'ViT-B_32'
  # Folder of `<model_name>.npz`. None: random weights, which are as fast.
  config.pretrained_dir = placeholder(str)
  # Folder of the metrics, in the workdir.
  config.log_dir = '.'
  # Measured steps, and steps before them.
  config.steps = 30
  config.initial_steps = 10
  # Required: images per step over all devices, size of the head, side of the
  # images in pixels.
  config.batch = 0
  config.num_classes = 0
  config.image_size = 0
  # 'float32' or 'bfloat16'.
  config.dtype = 'float32'
  return config.lock()
