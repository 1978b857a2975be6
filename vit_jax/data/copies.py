"""Finds images that show the same, also after scaling or saving anew."""

from collections.abc import Sequence
from concurrent import futures
import dataclasses
import os
from typing import Any

import cv2
from jaxtyping import Bool, Float32, Int, UInt8, UInt64
import numpy as np

from vit_jax.data import decoding

# Two images are copies if at most so many of the 64 bits of their gradients differ, their
# grey thumbnails differ by so many of 256 levels on average, and no place by many more:
# by so many levels, or all by a small share of the standard deviation. This tells apart
# small things before a plain background.
_MOST_BITS, _MOST_LEVELS = 6, 4.0
_MOST_GREY, _GREY_SHARE = 24, 0.15
_MOST_COLOUR, _COLOUR_SHARE = 48, 0.25  # JPEG changes colours more.
# Without contrast only the shares count. A picture in grey may be a copy of one in colours.
_CONTRAST, _COLOURLESS = 8.0, 2.0
_SIDE = 16  # Pixels of a thumbnail.
_CHUNK = 256  # Images that are compared with all others at once.
_BLOCK = 32  # Thumbnails that are compared at once, until one is a copy.


@dataclasses.dataclass(frozen=True)
class Looks:
  """What images look like, in few bytes an image.

  Attributes:
    bits: signs of the horizontal gradients of 8 x 8 places.
    thumbnails: in colour; images that are not colours have three equal channels.
    greys: the means of their channels.
    is_known: False for images that cannot be decoded.
  """

  bits: UInt64[np.ndarray, ' N']
  thumbnails: UInt8[np.ndarray, 'N S S 3']
  greys: UInt8[np.ndarray, 'N S S']
  is_known: np.ndarray


def look(source: Any) -> Looks:
  """Decodes every image of a source."""
  with futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    small = list(pool.map(lambda i: _decoded(source, i), range(len(source))))
  return of_thumbnails(small)


def of_thumbnails(
  small: Sequence[UInt8[np.ndarray, 'S S 3'] | None],
) -> Looks:
  """Returns the looks of thumbnails; None for an image that cannot be decoded."""
  empty = np.zeros((_SIDE, _SIDE, 3), np.uint8)
  thumbnails = np.stack([empty if x is None else x for x in small])
  greys = np.stack([x.mean(-1).round().astype(np.uint8) for x in thumbnails])
  grid = np.stack([_resized(x, (9, 8)) for x in greys]).astype(int)
  signs = (grid[:, :, 1:] > grid[:, :, :-1]).reshape(len(small), 64)
  bits = np.packbits(signs, axis=-1).view(np.uint64)[:, 0]
  return Looks(
    bits, thumbnails, greys, np.array([x is not None for x in small])
  )


def thumbnail(image: decoding.Image) -> UInt8[np.ndarray, 'S S 3']:
  """Returns a small square of an image; of float32 with full contrast.

  Images of other channels than three become grey.
  """
  pixels = image.astype(np.float32)
  if pixels.shape[-1] != 3:
    pixels = pixels.mean(-1, keepdims=True).repeat(3, -1)
  small = _resized(pixels, (_SIDE, _SIDE))
  if image.dtype != np.uint8:
    small -= small.min()
    small *= 255 / max(float(small.max()), 1e-12)
  return np.round(small).astype(np.uint8)


def _decoded(source: Any, index: int) -> UInt8[np.ndarray, 'S S 3'] | None:
  try:
    image = decoding.as_pixels(source[index]['image'])
  except (OSError, ValueError):
    return None
  return thumbnail(image)


def _resized(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
  return cv2.resize(image, size, interpolation=cv2.INTER_AREA)


def between(a: Looks, b: Looks) -> Int[np.ndarray, 'P 2']:
  """Returns (index in `a`, index in `b`) of each image of `b` with a copy in `a`.

  The copy is the first one in `a`, if there are several.
  """
  return _first_copies(a, b, is_earlier=False)


def within(looks: Looks) -> Int[np.ndarray, 'P 2']:
  """Returns (first, later) of each image of one source that is a copy of an earlier one."""
  return _first_copies(looks, looks, is_earlier=True)


def _first_copies(
  a: Looks, b: Looks, *, is_earlier: bool
) -> Int[np.ndarray, 'P 2']:
  pairs = []
  for start in range(0, len(b.bits), _CHUNK):
    stop = min(start + _CHUNK, len(b.bits))
    differ = np.bitwise_count(b.bits[start:stop, None] ^ a.bits[None])
    near = (differ <= _MOST_BITS) & a.is_known & b.is_known[start:stop, None]
    if is_earlier:
      near &= np.arange(len(a.bits)) < np.arange(start, stop)[:, None]
    for j in np.flatnonzero(near.any(1)).tolist():
      found = _first(a, np.flatnonzero(near[j]), b, start + j)
      if found is not None:
        pairs.append((found, start + j))
  return np.array(pairs, int).reshape(-1, 2)


def _first(a: Looks, places: np.ndarray, b: Looks, place: int) -> int | None:
  """Returns the first of some places of `a` with a copy of an image of `b`, or None."""
  wanted_grey = b.greys[place].astype(np.int16)
  want = b.thumbnails[place][None].astype(np.float32)
  for start in range(0, len(places), _BLOCK):
    some = places[start : start + _BLOCK]
    levels = np.abs(a.greys[some] - wanted_grey).mean((1, 2))
    some = some[levels <= _MOST_LEVELS]
    same = _is_same(a.thumbnails[some].astype(np.float32), want)
    if same.any():
      return int(some[same.argmax()])
  return None


def _is_same(
  a: Float32[np.ndarray, 'N S S 3'], b: Float32[np.ndarray, '1 S S 3']
) -> Bool[np.ndarray, ' N']:
  """Whether thumbnails are equal in grey, and in colour if both have colours."""
  grey_a, grey_b = (x.mean(-1, keepdims=True) for x in (a, b))
  colours = [
    np.abs(x - y).mean((1, 2, 3)) for x, y in ((a, grey_a), (b, grey_b))
  ]
  contrast = np.minimum(grey_a.std((1, 2, 3)), grey_b.std((1, 2, 3)))
  has_contrast = contrast >= _CONTRAST
  is_grey = has_contrast & (np.minimum(*colours) <= _COLOURLESS)

  def is_near(x: np.ndarray, y: np.ndarray, levels: float, share: float) -> Any:
    deviation = np.minimum(x.std((1, 2)).mean(-1), y.std((1, 2)).mean(-1))
    root = np.sqrt(((x - y) ** 2).mean((1, 2, 3)))
    few = np.abs(x - y).max((1, 2, 3)) <= levels
    return (has_contrast & few) | (root <= share * deviation)

  return is_near(grey_a, grey_b, _MOST_GREY, _GREY_SHARE) & (
    is_grey | is_near(a, b, _MOST_COLOUR, _COLOUR_SHARE)
  )
