"""How an image becomes the input of a model, the same in every format."""

from collections.abc import Mapping, Sequence
import dataclasses
from typing import Any

import ml_collections

from vit_jax.configs import resolved


@dataclasses.dataclass(frozen=True)
class Preprocessing:
  """How evaluation and prediction prepare an image.

  Equal records give equal pixels: one number stands for channels that all have
  the same.

  Attributes:
    size: (height, width) of the input in pixels; None where nothing tells.
    channels: of the input.
    mean: of the pixels in [0, 1], one for all channels or one for each, which
      is subtracted; 0.5 in the official models, so that inputs are in [-1, 1].
    std: divides the difference; as many numbers as `mean`.
    exif: whether images are turned upright by their EXIF tag.
    resize_test: as `resize` in `transforms.eval_image`.
  """

  size: tuple[int, int] | None = None
  channels: int = 3
  mean: Sequence[float] = (0.5,)
  std: Sequence[float] = (0.5,)
  exif: bool = False
  resize_test: int | tuple[int, int] | None = None

  def __post_init__(self):
    for name in ('mean', 'std'):
      values = getattr(self, name)
      if len(values) == self.channels and len(set(values)) == 1:
        object.__setattr__(self, name, values[:1])

  @property
  def image_shape(self) -> tuple[int, int, int] | None:
    """[H, W, C] of the input; None where nothing tells."""
    return (*self.size, self.channels) if self.size else None

  def changed(self, fields: Mapping[str, Any]) -> 'Preprocessing':
    """Returns a record with other fields, which may be as JSON has them."""
    return dataclasses.replace(
      self,
      **{k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()},
    )


def of_config(
  config: ml_collections.ConfigDict, channels: int
) -> Preprocessing:
  """Returns what evaluation does by a config in which nothing is open.

  Args:
    config: settings, of `resolved.with_defaults`.
    channels: of the images, which the data tells.
  """
  resize_test = config.pp.resize_test
  if resize_test is not None and not isinstance(resize_test, int):
    resize_test = tuple(resize_test)
  return Preprocessing(
    size=resolved.image_size(config),
    channels=channels,
    mean=tuple(config.pp.mean),
    std=tuple(config.pp.std),
    exif=config.pp.exif,
    resize_test=resize_test,
  )
