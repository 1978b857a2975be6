"""Which task a config describes: classes of images, or texts of images."""

import jax
import ml_collections

from vit_jax.configs import spec
from vit_jax.data import batching
from vit_jax.training import classification
from vit_jax.training import contrastive
from vit_jax.training import task


def make(
  config: ml_collections.ConfigDict,
  mesh: jax.sharding.Mesh,
  data: batching.Data | None = None,
  *,
  splits: batching.Splits | None = None,
) -> task.Task:
  """Returns the task of a config, contrastive where the model has a text tower.

  Args:
    config: settings, none open.
    mesh: where the state is.
    data: None makes it of `splits`.
    splits: the data set; None opens it.
  """
  has_texts = spec.has_texts(config.model)
  kind = contrastive if has_texts else classification
  return kind.make_task(config, mesh, data, splits=splits)
