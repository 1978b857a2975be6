"""Heads that predict numbers in the units of the labels."""

from collections.abc import Mapping, Sequence
from typing import Any

from jaxtyping import Float
import numpy as np

from vit_jax.weights import record as weights_lib


def in_units(
  params: weights_lib.Params,
  heads: Sequence[str],
  mean: Float[np.ndarray, ' K'],
  std: Float[np.ndarray, ' K'],
) -> dict[str, Any]:
  """Returns parameters whose logits are `mean` + `std` times those of `params`.

  Models are trained to predict (number - mean) / std.
  """
  changed = {name: _scaled(params[name], mean, std) for name in heads}
  return {**params, **changed}


def _scaled(
  head: Mapping[str, Any],
  mean: Float[np.ndarray, ' K'],
  std: Float[np.ndarray, ' K'],
) -> dict[str, Any]:
  return {'kernel': head['kernel'] * std, 'bias': head['bias'] * std + mean}
