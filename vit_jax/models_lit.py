"""The official import path of `vit_jax.models.lit`."""

from vit_jax.models.lit import BertModel
from vit_jax.models.lit import LitModel
from vit_jax.models.lit import TextTransformer

__all__ = ('BertModel', 'LitModel', 'TextTransformer')
