"""Random erasing, mixup and CutMix, jittable."""

import dataclasses
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

Images = Float[Array, 'B H W C']
Targets = Float[Array, 'B K']

# torchvision's erased rectangles: part of the image, and height over width.
_AREA = (0.02, 0.33)
_RATIO = (0.3, 3.3)


def random_erasing(
  key: Key[Array, ''], images: Images, probability: float
) -> Images:
  """Fills a rectangle of some images with noise (arXiv:1708.04896).

  The noise is standard normal, as in DeiT: images must be normalised.
  """
  keys = jax.random.split(key, 6)
  num, height, width = images.shape[:3]

  def uniform(
    i: int, low: float = 0.0, high: float = 1.0
  ) -> Float[Array, ' B']:
    return jax.random.uniform(keys[i], (num,), minval=low, maxval=high)

  area = uniform(0, *_AREA) * height * width
  ratio = jnp.exp(uniform(1, *map(math.log, _RATIO)))
  # torchvision draws again where a rectangle does not fit (1 %), we clip it.
  h = jnp.clip(jnp.round(jnp.sqrt(area * ratio)), 1, height)
  w = jnp.clip(jnp.round(jnp.sqrt(area / ratio)), 1, width)
  top = jnp.floor(uniform(2) * (height - h + 1))
  left = jnp.floor(uniform(3) * (width - w + 1))
  erased = _inside(top, top + h, left, left + w, height, width)
  erased &= jax.random.bernoulli(keys[4], probability, (num, 1, 1, 1))
  return jnp.where(erased, jax.random.normal(keys[5], images.shape), images)


def _inside(
  top: Array, bottom: Array, left: Array, right: Array, height: int, width: int
) -> Array:
  """Returns masks of rectangles, bool [..., height, width, 1]."""

  def between(low: Array, high: Array, size: int) -> Array:
    positions = jnp.arange(size)
    return (positions >= low[..., None]) & (positions < high[..., None])

  rows, columns = between(top, bottom, height), between(left, right, width)
  return (rows[..., :, None] & columns[..., None, :])[..., None]


@dataclasses.dataclass(frozen=True)
class Mix:
  """Mixes each image, and its label, with the one before it in the batch.

  Batches are shuffled, so that is a random image. Rolling by one place moves one
  image between neighbouring devices; a permutation would move nearly all.
  A batch has one share, or one rectangle, as in the papers' code. With both
  mixup and CutMix, each batch draws one of them. The share of mixup is beta(alpha,
  alpha); the image itself gets the larger part, as in big_vision.
  """

  num_classes: int
  mixup: float = 0.0  # Alpha of mixup (arXiv:1710.09412); 0 for none.
  cutmix: float = 0.0  # Alpha of CutMix (arXiv:1905.04899); 0 for none.

  def __call__(
    self,
    key: Key[Array, ''],
    images: Images,
    labels: Int[Array, ' B'] | Targets,
  ) -> tuple[Images, Targets]:
    """Returns mixed images and their targets.

    Labels are classes, or 1 for each class that an image has.
    """
    own = self.own(key, *images.shape[1:3])
    targets = labels if labels.ndim > 1 else self._one_hot(labels)
    return _mix(images, own), _mix(targets, jnp.mean(own))

  def _one_hot(self, labels: Int[Array, ' B']) -> Targets:
    return jax.nn.one_hot(labels, self.num_classes)

  def own(
    self, key: Key[Array, ''], height: int, width: int
  ) -> Float[Array, 'H W 1']:
    """Returns the share of the image itself in each pixel."""
    mixup_key, cutmix_key, choice_key = jax.random.split(key, 3)
    if not self.cutmix:
      return _mixup(mixup_key, self.mixup, height, width)
    cut = _cutmix(cutmix_key, self.cutmix, height, width)
    if not self.mixup:
      return cut
    mixed = _mixup(mixup_key, self.mixup, height, width)
    return jnp.where(jax.random.bernoulli(choice_key), mixed, cut)


def _mix(x: Array, own: Array) -> Array:
  return own * x + (1 - own) * jnp.roll(x, 1, axis=0)


def _mixup(
  key: Key[Array, ''], alpha: float, height: int, width: int
) -> Float[Array, 'H W 1']:
  share = jax.random.beta(key, alpha, alpha)
  return jnp.full((height, width, 1), jnp.maximum(share, 1 - share))


def _cutmix(
  key: Key[Array, ''], alpha: float, height: int, width: int
) -> Float[Array, 'H W 1']:
  share_key, y_key, x_key = jax.random.split(key, 3)
  side = jnp.sqrt(1 - jax.random.beta(share_key, alpha, alpha))
  y = jax.random.randint(y_key, (), 0, height)
  x = jax.random.randint(x_key, (), 0, width)
  # The centre is anywhere in the image, so a rectangle may reach beyond it.
  h, w = jnp.floor(height * side), jnp.floor(width * side)
  top, left = y - h // 2, x - w // 2
  return 1.0 - _inside(top, top + h, left, left + w, height, width)
