"""Random brightness, contrast, saturation and hue, jittable.

Colours are the first axis here, [C, B, H, W]: with a last axis of three, CPUs
take twenty times as long.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

Images = Float[Array, 'B H W C']
Planes = Float[Array, 'C B H W']
Factors = Float[Array, 'B 1 1']

_LUMA = (0.2989, 0.587, 0.114)  # torchvision's.


def color_jitter(
  key: Key[Array, ''], images: Images, amounts: Sequence[int | float]
) -> Images:
  """Changes colours as torchvision's `ColorJitter` does.

  Each image has its own factors. The order of the four changes is drawn once
  per batch: under `vmap`, each change would be computed four times.

  Args:
    key: for the factors and the order.
    images: in [0, 255], C 1 or 3. Grey images have no saturation and hue.
    amounts: (brightness, contrast, saturation, hue). Factors of the first three
      are uniform in [max(0, 1 - amount), 1 + amount]; the hue turns by at most
      `amount` of the circle.
  """
  order_key, *keys = jax.random.split(key, 5)
  shape = (len(images), 1, 1)

  def draw(i: int) -> Factors:
    amount = amounts[i]
    low, high = max(1 - amount, 0), 1 + amount
    if i == 3:  # The hue turns both ways.
      low, high = -amount, amount
    return jax.random.uniform(keys[i], shape, minval=low, maxval=high)

  changes = (_brightness, _contrast, _saturation, _hue)
  wanted = [
    (change, draw(i))
    for i, change in enumerate(changes[: 2 if images.shape[-1] == 1 else 4])
    if amounts[i]
  ]
  branches = [
    lambda x, f=f, change=change: change(x, f) for change, f in wanted
  ]
  planes = jnp.moveaxis(images, -1, 0)
  for i in jax.random.permutation(order_key, len(branches)):
    planes = jax.lax.switch(i, branches, planes)
  return jnp.moveaxis(planes, 0, -1)


def _blend(planes: Planes, start: Array, factors: Factors) -> Planes:
  return jnp.clip(start + factors * (planes - start), 0, 255)


def _grey(planes: Planes) -> Float[Array, 'B H W']:
  if len(planes) == 1:
    return planes[0]
  return sum(share * plane for share, plane in zip(_LUMA, planes, strict=True))


def _brightness(planes: Planes, factors: Factors) -> Planes:
  return _blend(planes, jnp.zeros(()), factors)


def _contrast(planes: Planes, factors: Factors) -> Planes:
  mean = jnp.mean(_grey(planes), axis=(1, 2), keepdims=True)
  return _blend(planes, mean, factors)


def _saturation(planes: Planes, factors: Factors) -> Planes:
  return _blend(planes, _grey(planes), factors)


def _hue(planes: Planes, turns: Factors) -> Planes:
  """Turns the hue of HSV and keeps value and chroma."""
  r, g, b = planes
  value = jnp.maximum(jnp.maximum(r, g), b)
  chroma = value - jnp.minimum(jnp.minimum(r, g), b)
  c = jnp.where(chroma > 0, chroma, 1.0)
  sixths = jnp.where(
    value == r,
    (g - b) / c,
    jnp.where(value == g, (b - r) / c + 2, (r - g) / c + 4),
  )

  def turned(place: float) -> Float[Array, 'B H W']:
    k = place + sixths + 6 * turns
    # k modulo 6 for k in [-3, 13]: the operation itself is slow.
    k = jnp.where(k < 0, k + 6, k)
    k = jnp.where(k >= 6, k - 6, k)
    k = jnp.where(k >= 6, k - 6, k)
    # The clipped part is the distance below the value, in chromas.
    return value - chroma * jnp.clip(jnp.minimum(k, 4 - k), 0, 1)

  return jnp.stack([turned(place) for place in (5.0, 3.0, 1.0)])
