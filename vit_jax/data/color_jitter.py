"""Brightness, contrast, saturation and hue at random, jittable."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

Images = Float[Array, 'B H W C']
Factors = Float[Array, 'B 1 1 1']

_LUMA = (0.2989, 0.587, 0.114)  # As torchvision has it.


def color_jitter(
  key: Key[Array, ''], images: Images, amounts: Sequence[int | float]
) -> Images:
  """Changes colours as torchvision's `ColorJitter` does.

  Each image has its own factors. The order of the four changes is drawn once
  for all of them: of four changes under `vmap`, each would be computed four
  times.

  Args:
    key: for the factors and the order.
    images: in [0, 255], C 1 or 3. Grey ones have no saturation and hue.
    amounts: (brightness, contrast, saturation, hue). Factors of the first three
      are uniform in [max(0, 1 - amount), 1 + amount]; the hue turns by at most
      that part of the circle, 0.5 being half of it.

  Returns:
    float32 in [0, 255].
  """
  order_key, *keys = jax.random.split(key, 5)
  shape = (len(images), 1, 1, 1)

  def draw(i: int) -> Factors:
    amount = amounts[i]
    low, high = (
      (-amount, amount) if i == 3 else (max(1 - amount, 0), 1 + amount)
    )
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
  for i in jax.random.permutation(order_key, len(branches)):
    images = jax.lax.switch(i, branches, images)
  return images


def _blend(images: Images, start: Array, factors: Factors) -> Images:
  return jnp.clip(start + factors * (images - start), 0, 255)


def _grey(images: Images) -> Float[Array, 'B H W 1']:
  if images.shape[-1] == 1:
    return images
  return jnp.sum(images * jnp.array(_LUMA), axis=-1, keepdims=True)


def _brightness(images: Images, factors: Factors) -> Images:
  return _blend(images, jnp.zeros(()), factors)


def _contrast(images: Images, factors: Factors) -> Images:
  mean = jnp.mean(_grey(images), axis=(1, 2), keepdims=True)
  return _blend(images, mean, factors)


def _saturation(images: Images, factors: Factors) -> Images:
  return _blend(images, _grey(images), factors)


def _hue(images: Images, turns: Factors) -> Images:
  """Turns the hue of HSV; value and chroma stay."""
  value = jnp.max(images, axis=-1, keepdims=True)
  chroma = value - jnp.min(images, axis=-1, keepdims=True)
  r, g, b = jnp.split(images, 3, axis=-1)
  c = jnp.where(chroma > 0, chroma, 1.0)
  sixths = jnp.where(
    value == r,
    (g - b) / c,
    jnp.where(value == g, (b - r) / c + 2, (r - g) / c + 4),
  )
  # How far red, green and blue are below the value, in chromas.
  k = (jnp.array([5.0, 3.0, 1.0]) + sixths + 6 * turns) % 6
  return value - chroma * jnp.clip(jnp.minimum(k, 4 - k), 0, 1)
