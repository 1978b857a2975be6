"""The task of a run: classes of images, or texts that fit images."""

from vit_jax.configs import spec
from vit_jax.data import batching
from vit_jax.training import classification
from vit_jax.training import contrastive
from vit_jax.training import resolve
from vit_jax.training import task


def make(run: resolve.Run, data: batching.Data | None = None) -> task.Task:
  """Returns the task of a run, contrastive where the model has a text tower.

  Args:
    run: what to do.
    data: None makes it of the splits of the run.
  """
  has_texts = spec.has_texts(run.config.model)
  kind = contrastive if has_texts else classification
  return kind.make_task(run, data)
