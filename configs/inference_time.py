"""Measures how many images per second a released model classifies.

python -m vit_jax.main --config=configs/inference_time.py --workdir=/tmp/speed \
  --config.model_name=ViT-B_16 --config.batch=64 --config.num_classes=1000 \
  --config.image_size=224

Settings, and what differs from the official ones: vit_jax/configs/inference_time.py.
"""

from vit_jax.configs import inference_time

get_config = inference_time.get_config
