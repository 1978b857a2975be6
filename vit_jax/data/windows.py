"""Where crops are."""

from jaxtyping import ArrayLike, Num
import numpy as np

_ATTEMPTS = 100

RATIO = (0.75, 1.33)  # Width over height of area crops, as TensorFlow has it.

PAD_MODES = {'zeros': 'constant', 'reflect': 'reflect'}  # As NumPy calls them.


def sample_area_crop(
  rng: np.random.Generator,
  height: int,
  width: int,
  area: tuple[float, float],
  ratio: tuple[float, float] = RATIO,
) -> tuple[int, int, int, int]:
  """Samples a crop as `tf.image.sample_distorted_bounding_box` does.

  Its height, not its area, is uniform between the smallest and the largest that
  `area` and the aspect ratio allow: with (0.05, 1) it takes 0.375 of the image
  on average, torchvision's way 0.46.

  Returns:
    (top, left, height, width); the whole image if 100 attempts fail.
  """
  smallest, largest = area[0] * height * width, area[1] * height * width
  for _ in range(_ATTEMPTS):
    # One call for all: four would take as long as the rest of this function.
    u_ratio, u_height, u_top, u_left = rng.random(4).tolist()
    r = ratio[0] + u_ratio * (ratio[1] - ratio[0])
    max_h = min(round((largest / r) ** 0.5), height)
    if round(max_h * r) > width:
      max_h = int((width + 0.5 - 1e-7) / r)
    min_h = min(round((smallest / r) ** 0.5), max_h)
    h = min_h + int(u_height * (max_h + 1 - min_h))
    # Rounding may leave the range by a pixel; one step may mend it.
    if h * round(h * r) < smallest:
      h += 1
    if h * round(h * r) > largest:
      h -= 1
    w = round(h * r)
    if 0 < h <= height and 0 < w <= width and smallest <= h * w <= largest:
      return int(u_top * (height - h)), int(u_left * (width - w)), h, w
  return 0, 0, height, width


def resized_size(
  height: int, width: int, resize: int | tuple[int, int]
) -> tuple[int, int]:
  """Returns the size of an image whose shorter side becomes `resize`.

  Args:
    height: in pixels.
    width: in pixels.
    resize: an integer, or (height, width), which is what is returned then.
  """
  if not isinstance(resize, int):
    return resize
  scale = resize / min(height, width)
  return round(height * scale), round(width * scale)


def centre(
  image: Num[ArrayLike, '*batch H W C'], size: tuple[int, int]
) -> Num[ArrayLike, '*batch h w C']:
  """Returns the window of this (height, width) in the middle of images."""
  height, width = size
  top = (image.shape[-3] - height) // 2
  left = (image.shape[-2] - width) // 2
  return image[..., top : top + height, left : left + width, :]
