"""The official import path of `vit_jax.models.mixer`."""

from vit_jax.models.mixer import MixerBlock
from vit_jax.models.mixer import MlpBlock
from vit_jax.models.mixer import MlpMixer

__all__ = ('MixerBlock', 'MlpBlock', 'MlpMixer')
