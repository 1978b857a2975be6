"""Families of transformers, one a file: their JSON and the names of their arrays.

record   what is said about a family, and what most share
compare  which settings of a model a format loses
dino     DINOv2, with and without registers
"""

from vit_jax.weights.families import dino
from vit_jax.weights.families.compare import lost
from vit_jax.weights.families.record import EXACT_GELU
from vit_jax.weights.families.record import Family
from vit_jax.weights.families.record import one_or_pair
from vit_jax.weights.families.record import pair

# By `model_type`. An exported model is of the first family that can be it.
FAMILIES: dict[str, Family] = {
  'dinov2': dino.DINOV2,
  'dinov2_with_registers': dino.DINOV2_WITH_REGISTERS,
}

__all__ = ('EXACT_GELU', 'FAMILIES', 'Family', 'lost', 'one_or_pair', 'pair')
