"""Fine-tunes any released ViT; the official command line.

python -m vit_jax.main --config=configs/vit.py:b16,cifar10 --workdir=/tmp/b16

Settings, and what differs from the official ones: vit_jax/configs/vit.py.
"""

from vit_jax.configs import vit

get_config = vit.get_config
