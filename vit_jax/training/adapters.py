"""LoRA in a run, by its settings; without them parameters stay as they are."""

from collections.abc import Callable, Sequence
import functools
from typing import Any

import jax
import ml_collections

from vit_jax.configs import spec
from vit_jax.models import blocks
from vit_jax.models import lora
from vit_jax.runtime import errors
from vit_jax.training import freeze
from vit_jax.training import stages as stages_lib

Params = dict[str, Any]


def add(config: ml_collections.ConfigDict, params: Params) -> Params:
  """Returns the first parameters of a run, with the matrices of LoRA."""
  if not config.lora_rank:
    return params
  plain = blocks.unstack(params)
  rank, targets = config.lora_rank, config.lora_targets
  plain = lora.add(plain, rank, targets, config.seed)
  return blocks.stack(plain) if config.scan_layers else plain


def extend(config: ml_collections.ConfigDict, shapes: Params) -> Params:
  """Returns the shapes of `add`."""
  return jax.eval_shape(functools.partial(add, config), shapes)


def merger(config: ml_collections.ConfigDict) -> Callable[[Params], Params]:
  """Returns the function from parameters of a run to those of its model."""
  if not config.lora_rank:
    return lambda params: params
  return functools.partial(lora.merge, alpha=config.lora_alpha)


def locked(config: ml_collections.ConfigDict) -> list[str]:
  """Returns the patterns of parameters that are not trained."""
  if not config.lora_rank:
    return []
  return [lora.frozen(spec.of(config.model).heads)]


def check_trained(
  config: ml_collections.ConfigDict, stages: Sequence[stages_lib.Stage]
) -> None:
  """Raises `errors.UserError` if all stages freeze the matrices of LoRA."""
  if config.lora_rank and not any(
    lora.has(freeze.split(stage.like.params, stage.freeze)[0])
    for stage in stages
  ):
    raise errors.UserError(
      f'config.freeze freezes the matrices of config.lora_rank={config.lora_rank}'
      f' too. Leave it out: LoRA trains them and the head alone.'
    )
