"""Fine-tunes Mixer-B/16 (ImageNet-21k) on CIFAR-10 at 224 px.

python -m vit_jax.main --config=configs/mixer_base16_cifar10.py --workdir=/tmp/mixer
Official code: 96.82 % top-1.

Settings, and what differs from the official ones: vit_jax/configs/mixer_base16_cifar10.py.
"""

from vit_jax.configs import mixer_base16_cifar10

get_config = mixer_base16_cifar10.get_config
