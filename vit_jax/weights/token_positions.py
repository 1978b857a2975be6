"""Moves position embeddings between the sequence and the tokens that have them."""

import dataclasses

import numpy as np

from vit_jax.configs import spec
from vit_jax.weights import record as weights_lib


def positioned(
  weights: weights_lib.Weights, number: int | None = None
) -> weights_lib.Weights:
  """Returns weights of an equal ViT with another number of positioned tokens.

  Formats differ in which of the tokens before the patches have position
  embeddings. An embedding that is taken away is added to its token; one that is
  new is zero. The outputs are the same, bit for bit.

  Args:
    weights: weights of a ViT; others are returned as they are.
    number: how many tokens before the patches have position embeddings; None for
      the class and the distillation token.
  """
  model, what = dict(weights.known_model()), weights.spec
  model.pop('num_positioned', None)
  usual = spec.of(model).num_positioned
  old, new = what.num_positioned, usual if number is None else number
  flat = weights_lib.flatten(weights.params)
  if what.position_embeddings not in flat or old == new:
    return weights
  if new != usual:
    model['num_positioned'] = new
  posemb = np.asarray(flat[what.position_embeddings])
  tokens = [name for name, count in what.extra_tokens.items() if count]
  joined = np.concatenate([flat[name] for name in tokens], axis=1)
  if new < old:
    joined[:, new:old] += posemb[:, new:old]
    posemb = np.delete(posemb, np.s_[new:old], axis=1)
  else:
    posemb = np.insert(posemb, [old] * (new - old), 0, axis=1)
  ends = np.cumsum([flat[name].shape[1] for name in tokens])
  flat |= zip(tokens, np.split(joined, ends[:-1], axis=1), strict=True)
  flat[what.position_embeddings] = posemb
  return dataclasses.replace(
    weights, params=weights_lib.unflatten(flat), model=model
  )
