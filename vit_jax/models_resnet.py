"""The official import path of `vit_jax.models.resnet`."""

from vit_jax.models.resnet import ResidualUnit
from vit_jax.models.resnet import ResNetStage
from vit_jax.models.resnet import StdConv
from vit_jax.models.resnet import weight_standardize

__all__ = ('ResNetStage', 'ResidualUnit', 'StdConv', 'weight_standardize')
