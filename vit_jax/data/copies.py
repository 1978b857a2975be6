"""Finds images that show the same, also after scaling or saving anew."""

from collections.abc import Sequence
from concurrent import futures
import dataclasses
import os
from typing import Any

import cv2
from jaxtyping import Int, UInt8, UInt64
import numpy as np

from vit_jax.data import decoding

# Two images are copies if at most so many of the 64 bits of their gradients differ,
# and their thumbnails differ by so many grey levels on average.
_MOST_BITS, _MOST_LEVELS = 6, 4.0
_SIDE = 16  # Pixels of a thumbnail.
_CHUNK = 256  # Images that are compared with all others at once.


@dataclasses.dataclass(frozen=True)
class Looks:
  """What images look like, in few bytes an image.

  Attributes:
    bits: signs of the horizontal gradients of 8 x 8 places.
    thumbnails: in grey.
    is_known: False for images that cannot be decoded.
  """

  bits: UInt64[np.ndarray, ' N']
  thumbnails: UInt8[np.ndarray, 'N S S']
  is_known: np.ndarray


def look(source: Any) -> Looks:
  """Decodes every image of a source."""
  with futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    small = list(pool.map(lambda i: _decoded(source, i), range(len(source))))
  return of_thumbnails(small)


def of_thumbnails(
  small: Sequence[UInt8[np.ndarray, 'S S'] | None],
) -> Looks:
  """Returns the looks of thumbnails; None for an image that cannot be decoded."""
  empty = np.zeros((_SIDE, _SIDE), np.uint8)
  thumbnails = np.stack([empty if x is None else x for x in small])
  grid = np.stack([_resized(x, (9, 8)) for x in thumbnails]).astype(int)
  signs = (grid[:, :, 1:] > grid[:, :, :-1]).reshape(len(small), 64)
  bits = np.packbits(signs, axis=-1).view(np.uint64)[:, 0]
  return Looks(bits, thumbnails, np.array([x is not None for x in small]))


def thumbnail(image: decoding.Image) -> UInt8[np.ndarray, 'S S']:
  """Returns a small square of an image in grey; of float32 with full contrast."""
  small = _resized(image.astype(np.float32).mean(-1), (_SIDE, _SIDE))
  if image.dtype != np.uint8:
    small -= small.min()
    small *= 255 / max(float(small.max()), 1e-12)
  return np.round(small).astype(np.uint8)


def _decoded(source: Any, index: int) -> UInt8[np.ndarray, 'S S'] | None:
  try:
    image = decoding.as_pixels(source[index]['image'])
  except (OSError, ValueError):
    return None
  return thumbnail(image)


def _resized(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
  return cv2.resize(image, size, interpolation=cv2.INTER_AREA)


def between(a: Looks, b: Looks) -> Int[np.ndarray, 'P 2']:
  """Returns the pairs (index in `a`, index in `b`) of copies, by the second."""
  pairs = []
  for start in range(0, len(b.bits), _CHUNK):
    stop = min(start + _CHUNK, len(b.bits))
    differ = np.bitwise_count(b.bits[start:stop, None] ^ a.bits[None])
    near = (differ <= _MOST_BITS) & a.is_known & b.is_known[start:stop, None]
    for j, i in np.argwhere(near):
      levels = a.thumbnails[i].astype(int) - b.thumbnails[start + j]
      if np.abs(levels).mean() <= _MOST_LEVELS:
        pairs.append((i, start + j))
  return np.array(pairs, int).reshape(-1, 2)


def within(looks: Looks) -> Int[np.ndarray, 'P 2']:
  """Returns the pairs of different images of one source that are copies."""
  pairs = between(looks, looks)
  return pairs[pairs[:, 0] < pairs[:, 1]]
