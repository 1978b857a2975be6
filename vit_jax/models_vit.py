"""The official import path of `vit_jax.models.vit`."""

from vit_jax.models.parts import IdentityLayer
from vit_jax.models.parts import MlpBlock
from vit_jax.models.positions import AddPositionEmbs
from vit_jax.models.vit import Encoder
from vit_jax.models.vit import Encoder1DBlock
from vit_jax.models.vit import VisionTransformer

__all__ = (
  'AddPositionEmbs',
  'Encoder',
  'Encoder1DBlock',
  'IdentityLayer',
  'MlpBlock',
  'VisionTransformer',
)
