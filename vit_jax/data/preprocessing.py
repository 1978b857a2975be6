"""How an image becomes the input of a model, the same in every format."""

from collections.abc import Mapping, Sequence
import dataclasses
from typing import Any

import ml_collections

from vit_jax.configs import resolved


@dataclasses.dataclass(frozen=True)
class Preprocessing:
  """How evaluation and prediction prepare an image.

  The input is (x - mean) / std of pixels x in [0, 1]; official models use 0.5 and
  0.5, which gives [-1, 1]. Equal records give equal pixels: channels with the same
  value share one number.
  """

  size: tuple[int, int] | None = None  # (height, width); None if unknown.
  channels: int = 3
  mean: Sequence[float] = (0.5,)
  std: Sequence[float] = (0.5,)
  # One of `images.INTERPOLATIONS`.
  interpolation: str = 'bilinear'
  exif: bool = False  # Whether images are turned upright by their EXIF tag.
  resize_test: int | tuple[int, int] | None = (
    None  # See `transforms.eval_image`.
  )

  def __post_init__(self):
    for name in ('mean', 'std'):
      values = getattr(self, name)
      if len(values) == self.channels and len(set(values)) == 1:
        object.__setattr__(self, name, values[:1])

  @property
  def image_shape(self) -> tuple[int, int, int] | None:
    """[H, W, C] of the input; None if unknown."""
    return (*self.size, self.channels) if self.size else None

  def changed(self, fields: Mapping[str, Any]) -> 'Preprocessing':
    """Returns a record with other fields, whose tuples may be JSON lists."""
    own = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
    lists = {k: tuple(v) for k, v in fields.items() if isinstance(v, list)}
    return Preprocessing(**{**own, **fields, **lists})


def of_config(
  config: ml_collections.ConfigDict, channels: int
) -> Preprocessing:
  """Returns how evaluation prepares images of `channels` by a resolved config."""
  resize_test = config.pp.resize_test
  if resize_test is not None and not isinstance(resize_test, int):
    resize_test = tuple(resize_test)
  return Preprocessing(
    size=resolved.image_size(config),
    channels=channels,
    mean=tuple(config.pp.mean),
    std=tuple(config.pp.std),
    interpolation=config.pp.interpolation,
    exif=config.pp.exif,
    resize_test=resize_test,
  )
