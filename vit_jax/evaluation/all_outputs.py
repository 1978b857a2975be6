"""Outputs of a model for all images of a split, on every host."""

from collections.abc import Callable
import dataclasses
from typing import Any

import jax
from jax.experimental import multihost_utils
from jaxtyping import Array
import numpy as np

from vit_jax.data import batching
from vit_jax.data import sources
from vit_jax.runtime import errors
from vit_jax.runtime import sharding

# Maps parameters and a source to outputs [N, ...] and labels [N] or [N, K] of the
# images that can be decoded.
Reader = Callable[[Any, sources.Source], tuple[np.ndarray, np.ndarray]]


def reader(
  function: Callable[[Any, Array], Array],
  data: batching.Data,
  mesh: jax.sharding.Mesh,
  batch_size: int,
) -> Reader:
  """Returns a function that reads a source as evaluation does.

  Args:
    function: maps parameters and normalised images to outputs.
    data: says how images are preprocessed.
    mesh: the devices.
    batch_size: images a step, over all devices.

  Raises:
    errors.UserError: the returned function, if no image can be decoded.
  """

  def outputs(params: Any, images: Array) -> Array:
    return function(params, data.preprocess.eval(images))

  step_fn = jax.jit(sharding.in_mesh(mesh, outputs))

  def read(
    params: Any, source: sources.Source
  ) -> tuple[np.ndarray, np.ndarray]:
    decoded = dataclasses.replace(data.test, source=source)
    part = dataclasses.replace(data, test=decoded)
    rows = []
    for batch in batching.eval_batches(part, mesh, batch_size):
      found = step_fn(params, batch['image'])
      # Every host gets the outputs of all images, and computes the same.
      found, labels, mask = multihost_utils.process_allgather(
        (found, batch['label'], batch['mask']), tiled=True
      )
      rows.append((found[mask], labels[mask]))
    every, labels = (np.concatenate(x) for x in zip(*rows, strict=True))
    if not len(every):
      raise errors.UserError('None of the images can be decoded.')
    return every, labels

  return read
