"""Model families, one a file, and `get_model` to make one by name."""

from typing import Any

import flax.linen as nn

from vit_jax.configs import models as model_configs
from vit_jax.models.vit import AddPositionEmbs
from vit_jax.models.vit import Encoder
from vit_jax.models.vit import Encoder1DBlock
from vit_jax.models.vit import init_params
from vit_jax.models.vit import MlpBlock
from vit_jax.models.vit import patch_grid
from vit_jax.models.vit import VisionTransformer

__all__ = (
  'AddPositionEmbs',
  'Encoder',
  'Encoder1DBlock',
  'MlpBlock',
  'VisionTransformer',
  'get_model',
  'init_params',
  'patch_grid',
)


def get_model(model_name: str, **kwargs: Any) -> nn.Module:
  """Returns a released model by name, `ViT-B_16` or `b16`.

  Args:
    model_name: see `configs.models.MODEL_CONFIGS`.
    **kwargs: further arguments of the module, `num_classes` above all.

  Raises:
    ValueError: if there is no such model.
  """
  config = model_configs.get_model_config(model_name)
  return VisionTransformer(**{**config.to_dict(), **kwargs})
