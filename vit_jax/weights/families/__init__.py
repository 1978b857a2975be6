"""Families of transformers, one a file: their JSON and the names of their arrays.

record       `Family`, and what most families share
state_dicts  from arrays and JSON to weights, and back
compare      which settings of a model a format loses
towers       what families with an image and a text tower share
vit          ViT, DeiT, the encoder of MAE, MSN, I-JEPA
dino         DINOv2, with and without registers
dinov3       the ViTs of DINOv3
clip         CLIP: two towers, or the image tower alone
siglip       SigLIP: two towers, or the image tower alone
siglip2      SigLIP 2 NaFlex
"""

from vit_jax.weights.families import clip
from vit_jax.weights.families import dino
from vit_jax.weights.families import dinov3
from vit_jax.weights.families import siglip
from vit_jax.weights.families import siglip2
from vit_jax.weights.families import state_dicts
from vit_jax.weights.families import vit
from vit_jax.weights.families.clip import MEAN as CLIP_MEAN
from vit_jax.weights.families.clip import STD as CLIP_STD
from vit_jax.weights.families.clip import (
  TEMPERATURE_MAX as CLIP_TEMPERATURE_MAX,
)
from vit_jax.weights.families.compare import lost
from vit_jax.weights.families.record import Arrays
from vit_jax.weights.families.record import Family
from vit_jax.weights.families.record import one_or_pair
from vit_jax.weights.families.record import pair

# By `model_type`, or a name of our own where several share one. An exported
# model is of the first family that loses least.
FAMILIES: dict[str, Family] = {
  'vit': vit.VIT,
  'deit': vit.DEIT,
  'vit_mae': vit.VIT_MAE,
  'dinov2': dino.DINOV2,
  'dinov2_with_registers': dino.DINOV2_WITH_REGISTERS,
  'dinov3_vit': dinov3.DINOV3,
  'clip': clip.CLIP,
  'clip_classifier': clip.CLASSIFIER,
  'clip_projected': clip.PROJECTED,
  'clip_vision_model': clip.IMAGE,
  'siglip': siglip.SIGLIP,
  'siglip_classifier': siglip.CLASSIFIER,
  'siglip_vision_model': siglip.IMAGE,
  'siglip2': siglip2.SIGLIP2,
  'siglip2_classifier': siglip2.CLASSIFIER,
  'siglip2_vision_model': siglip2.IMAGE,
  'vit_msn': vit.VIT_MSN,
  'ijepa': vit.IJEPA,
}


def kinds() -> list[str]:
  """Returns every `model_type` that can be read."""
  return sorted({f.model_type or key for key, f in FAMILIES.items()})


def find(kind: str, arrays: Arrays) -> Family | None:
  """Returns the family of a state dict with this `model_type`, if it is known."""
  return state_dicts.find(FAMILIES, kind, arrays)


__all__ = (
  'CLIP_MEAN',
  'CLIP_STD',
  'CLIP_TEMPERATURE_MAX',
  'FAMILIES',
  'Family',
  'find',
  'kinds',
  'lost',
  'one_or_pair',
  'pair',
  'state_dicts',
)
