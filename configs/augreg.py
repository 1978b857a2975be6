"""Fine-tunes a ViT or hybrid of the AugReg release (arXiv:2106.10270).

python -m vit_jax.main --config=configs/augreg.py:R_Ti_16 --workdir=/tmp/augreg \
  --config.dataset=oxford_iiit_pet --config.pp.train='train[:90%]' \
  --config.base_lr=0.01

Settings, and what differs from the official ones: vit_jax/configs/augreg.py.
"""

from vit_jax.configs import augreg

get_config = augreg.get_config
