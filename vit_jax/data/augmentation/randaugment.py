"""RandAugment (arXiv:1909.13719), in NumPy and OpenCV, as AugReg used it.

Operations and magnitudes are those of the official code of EfficientNet and of
big_vision (`pp/archive/autoaugment.py`). Pixels from outside of the image are
grey.

Two things differ. Lengths in pixels, meant for 224, grow with the image. The
mean in `contrast` is that of the image, as in Pillow and big_vision today.
"""

from collections.abc import Callable, Sequence

import cv2
from jaxtyping import UInt8
import numpy as np

Image = UInt8[np.ndarray, 'H W C']
Table = UInt8[np.ndarray, '256'] | UInt8[np.ndarray, '256 C']

_GREY = 128
_VALUES = np.arange(256)
_SMOOTH = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / 13

# Parts of the side at magnitude 10.
_TRANSLATE = 100 / 224
_CUTOUT = 40 / 224


def randaugment(
  image: Image, rng: np.random.Generator, num_ops: int, magnitude: int | float
) -> Image:
  """Applies `num_ops` random operations (N in the paper) one after the other.

  All have the same magnitude (M in the paper); 10 is AutoAugment's. C is 1 or 3.
  """
  ops = list(OPS.values())
  for index in rng.integers(len(ops), size=num_ops):
    image = ops[index](image, magnitude / 10, rng)
  return image


def _lookup(image: Image, table: Table) -> Image:
  """Replaces values by one table, or by one for each channel."""
  if table.ndim == 2:
    table = table[:, None]
  return cv2.LUT(image, table).reshape(image.shape)


def _histograms(image: Image) -> np.ndarray:
  """Returns the histogram of each channel, [256, C]."""
  counts = [
    cv2.calcHist([image], [c], None, [256], [0, 256]).ravel()
    for c in range(image.shape[-1])
  ]
  return np.stack(counts, axis=-1).astype(np.int64)


def autocontrast(image: Image) -> Image:
  """Stretches each channel to 0 ... 255."""
  # NumPy reduces whole rows far faster than pixels of three numbers.
  rows = image.reshape(len(image), -1)
  low = rows.min(axis=0).reshape(image.shape[1:]).min(axis=0).astype(float)
  high = rows.max(axis=0).reshape(image.shape[1:]).max(axis=0).astype(float)
  is_flat = high <= low
  scale = 255 / np.where(is_flat, 1, high - low)
  table = np.clip((_VALUES[:, None] - low) * scale, 0, 255)
  table = np.where(is_flat, _VALUES[:, None], table)
  # The reference has 254.999... in places.
  return _lookup(image, np.floor(table + 1e-6).astype(np.uint8))


def equalize(image: Image) -> Image:
  """Makes the histogram of each channel as flat as possible."""
  counts = _histograms(image)
  last = 255 - np.argmax(counts[::-1] > 0, axis=0)
  step = (counts.sum(axis=0) - counts[last, range(counts.shape[1])]) // 255
  before = np.cumsum(counts, axis=0) - counts
  table = (before + step // 2) // np.maximum(step, 1)
  table = np.where(step > 0, np.clip(table, 0, 255), _VALUES[:, None])
  return _lookup(image, table.astype(np.uint8))


def invert(image: Image) -> Image:
  """Replaces x by 255 - x."""
  return 255 - image


def posterize(image: Image, bits: int) -> Image:
  """Keeps the highest `bits`, at least one."""
  return image & np.uint8(256 - (1 << (8 - min(max(bits, 1), 8))))


def solarize(image: Image, threshold: int) -> Image:
  """Inverts values from `threshold` on."""
  table = np.where(threshold > _VALUES, _VALUES, 255 - _VALUES)
  return _lookup(image, table.astype(np.uint8))


def solarize_add(image: Image, addition: int) -> Image:
  """Adds `addition` to values below 128."""
  table = np.where(_VALUES < 128, _VALUES + addition, _VALUES)
  return _lookup(image, np.clip(table, 0, 255).astype(np.uint8))


def _blend(start: Image, image: Image, factor: int | float) -> Image:
  """Interpolates from `start` (0) to `image` (1) and beyond."""
  blended = cv2.addWeighted(image, factor, start, 1 - factor, 0)
  return blended.reshape(image.shape)


def _grey(image: Image) -> UInt8[np.ndarray, 'H W 1']:
  if image.shape[-1] == 1:
    return image
  return cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)[..., None]


def color(image: Image, factor: int | float) -> Image:
  """Changes the saturation; 0 is grey."""
  grey = _grey(image)
  if image.shape[-1] == 3:
    grey = cv2.cvtColor(grey, cv2.COLOR_GRAY2RGB)
  return _blend(grey, image, factor)


def contrast(image: Image, factor: int | float) -> Image:
  """Changes the contrast; 0 is the mean of the grey image."""
  mean = np.full_like(image, round(float(_grey(image).mean())))
  return _blend(mean, image, factor)


def brightness(image: Image, factor: int | float) -> Image:
  """Changes the brightness; 0 is black."""
  return _blend(np.zeros_like(image), image, factor)


def sharpness(image: Image, factor: int | float) -> Image:
  """Smooths (0) or sharpens (over 1) all but the border."""
  smooth = image.copy()
  filtered = cv2.filter2D(image, -1, _SMOOTH).reshape(image.shape)
  smooth[1:-1, 1:-1] = filtered[1:-1, 1:-1]
  return _blend(smooth, image, factor)


def warp(image: Image, matrix: Sequence[Sequence[float]] | np.ndarray) -> Image:
  """Reads each pixel where a matrix [2, 3] maps its (x, y, 1)."""
  height, width, channels = image.shape
  warped = cv2.warpAffine(
    image,
    np.asarray(matrix, np.float64),
    (width, height),
    flags=cv2.INTER_NEAREST | cv2.WARP_INVERSE_MAP,
    borderValue=(_GREY,) * channels,
  )
  return warped.reshape(image.shape)


def rotate(image: Image, degrees: int | float) -> Image:
  """Rotates about the centre, clockwise."""
  height, width = image.shape[:2]
  centre = ((width - 1) / 2, (height - 1) / 2)
  return warp(image, cv2.getRotationMatrix2D(centre, degrees, 1.0))


def shear_x(image: Image, shear: int | float) -> Image:
  """Shifts each row by `shear` times its height."""
  return warp(image, [[1, shear, 0], [0, 1, 0]])


def shear_y(image: Image, shear: int | float) -> Image:
  """Shifts each column by `shear` times its place."""
  return warp(image, [[1, 0, 0], [shear, 1, 0]])


def translate(image: Image, x: int | float, y: int | float) -> Image:
  """Shifts the image by `x` and `y` pixels."""
  return warp(image, [[1, 0, -x], [0, 1, -y]])


def cutout(image: Image, part: int | float, rng: np.random.Generator) -> Image:
  """Fills a rectangle with grey; half its sides are `part` of the image's."""
  image = image.copy()
  slices = []
  for side in image.shape[:2]:
    centre, reach = int(rng.integers(side)), int(part * side)
    slices.append(slice(max(centre - reach, 0), centre + reach))
  image[tuple(slices)] = _GREY
  return image


def _signed(value: int | float, rng: np.random.Generator) -> int | float:
  return value if rng.random() < 0.5 else -value


def _enhance(level: int | float) -> float:
  return 1.8 * level + 0.1


# Functions of the image, the magnitude in units of 10, and a generator. Magnitude 0
# changes images too. As in the official code, the threshold of `solarize` wraps
# around in uint8 (at 10 and 20 it is 0), and `posterize` keeps more bits at larger
# magnitudes.
OPS: dict[str, Callable[[Image, float, np.random.Generator], Image]] = {
  'autocontrast': lambda x, level, rng: autocontrast(x),
  'equalize': lambda x, level, rng: equalize(x),
  'invert': lambda x, level, rng: invert(x),
  'rotate': lambda x, level, rng: rotate(x, _signed(30 * level, rng)),
  'posterize': lambda x, level, rng: posterize(x, int(4 * level)),
  'solarize': lambda x, level, rng: solarize(x, int(256 * level) % 256),
  'color': lambda x, level, rng: color(x, _enhance(level)),
  'contrast': lambda x, level, rng: contrast(x, _enhance(level)),
  'brightness': lambda x, level, rng: brightness(x, _enhance(level)),
  'sharpness': lambda x, level, rng: sharpness(x, _enhance(level)),
  'shear_x': lambda x, level, rng: shear_x(x, _signed(0.3 * level, rng)),
  'shear_y': lambda x, level, rng: shear_y(x, _signed(0.3 * level, rng)),
  'translate_x': lambda x, level, rng: translate(
    x, _signed(_TRANSLATE * level * x.shape[1], rng), 0
  ),
  'translate_y': lambda x, level, rng: translate(
    x, 0, _signed(_TRANSLATE * level * x.shape[0], rng)
  ),
  'cutout': lambda x, level, rng: cutout(x, _CUTOUT * level, rng),
  'solarize_add': lambda x, level, rng: solarize_add(x, int(110 * level)),
}
