"""The operations of RandAugment are Pillow's, drawn as the official code draws."""

import numpy as np
from pictures import picture
import pytest

from vit_jax.data.augmentation import randaugment

PILLOW = {  # Our function, Pillow's, and the largest difference, of rounding.
  'autocontrast': (
    randaugment.autocontrast,
    lambda ops, _, x: ops.autocontrast(x),
    1,
  ),
  'equalize': (randaugment.equalize, lambda ops, _, x: ops.equalize(x), 0),
  'invert': (randaugment.invert, lambda ops, _, x: ops.invert(x), 0),
  **{
    f'posterize {bits}': (
      lambda x, bits=bits: randaugment.posterize(x, bits),
      lambda ops, _, x, bits=bits: ops.posterize(x, bits),
      0,
    )
    for bits in (1, 4, 6, 8)
  },
  **{
    f'solarize {threshold}': (
      lambda x, t=threshold: randaugment.solarize(x, t),
      lambda ops, _, x, t=threshold: ops.solarize(x, t),
      0,
    )
    for threshold in (0, 128)
  },
  **{
    f'{name} {factor}': (
      lambda x, f=factor, name=name: getattr(randaugment, name)(x, f),
      lambda _, enhance, x, f=factor, name=name: getattr(enhance, name.title())(
        x
      ).enhance(f),
      1 + np.ceil(abs(1 - factor)),
    )
    for name in ('color', 'contrast', 'brightness', 'sharpness')
    for factor in (0.1, 0.7, 1.9, 3.7)
  },
}


@pytest.mark.parametrize('name', PILLOW)
def test_operations_equal_pillows(name):
  pillow = pytest.importorskip('PIL.Image')
  from PIL import ImageEnhance
  from PIL import ImageOps

  ours, theirs, tolerance = PILLOW[name]
  flat = picture(1)
  flat[..., 2] = 90  # Nothing to stretch or equalise.
  for image in (picture(0), flat):
    want = theirs(ImageOps, ImageEnhance, pillow.fromarray(image))
    got = ours(image)
    assert got.dtype == np.uint8
    difference = np.abs(got.astype(int) - np.asarray(want))
    assert difference.max() <= tolerance
    assert difference.mean() <= 0.7 * tolerance


def moved(image, source):
  """Takes each pixel from `source(y, x)`, grey where that is outside."""
  height, width = image.shape[:2]
  y, x = (np.round(c).astype(int) for c in source(*np.mgrid[:height, :width]))
  inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
  return np.where(inside[..., None], image[y % height, x % width], 128)


@pytest.mark.parametrize(
  'ours, source',
  [
    (lambda x: randaugment.shear_x(x, 0.3), lambda y, x: (y, x + 0.3 * y)),
    (lambda x: randaugment.shear_y(x, -0.3), lambda y, x: (y - 0.3 * x, x)),
    (lambda x: randaugment.translate(x, 9, -7), lambda y, x: (y + 7, x - 9)),
    (lambda x: randaugment.rotate(x, 180), lambda y, x: (39 - y, 55 - x)),
    (  # Clockwise about (19.5, 27.5).
      lambda x: randaugment.rotate(x, 30),
      lambda y, x: (
        19.5 + np.cos(np.pi / 6) * (y - 19.5) - 0.5 * (x - 27.5),
        27.5 + np.cos(np.pi / 6) * (x - 27.5) + 0.5 * (y - 19.5),
      ),
    ),
  ],
)
def test_geometric_operations_move_pixels(ours, source):
  image = picture()
  # Halfway between two pixels either is right.
  wrong = np.any(ours(image) != moved(image, source), axis=-1)
  assert wrong.mean() < 0.06
  assert np.any(ours(image) != image)


class Sign(np.random.Generator):
  """A generator that draws the positive sign, or the negative."""

  def random(self):
    return self.value


def apply(name, image, magnitude, sign=1):
  rng = Sign(np.random.PCG64())
  rng.value = 0.0 if sign > 0 else 0.9
  return randaugment.OPS[name](image, magnitude / 10, rng)


def test_magnitudes_are_those_of_the_official_code():
  values = np.arange(256, dtype=np.uint8).reshape(16, 16, 1).repeat(3, -1)
  for magnitude, bits in ((0, 1), (10, 4), (15, 6), (20, 8), (30, 8)):
    got = apply('posterize', values, magnitude)
    assert len(np.unique(got)) == 2**bits
  for magnitude, threshold in ((0, 0), (5, 128), (10, 0), (15, 128), (20, 0)):
    got = apply('solarize', values, magnitude)
    np.testing.assert_array_equal(
      got, np.where(values >= threshold, 255 - values, values)
    )
  got = apply('solarize_add', values, 15)[..., 0].ravel()
  np.testing.assert_array_equal(got[:90], np.arange(165, 255))
  np.testing.assert_array_equal(got[128:], np.arange(128, 256))
  dim = np.full((8, 8, 3), 20, np.uint8)
  for magnitude, value in ((0, 2), (10, 38), (20, 74)):
    assert apply('brightness', dim, magnitude).max() == value
  image = picture(height=224, width=224)
  np.testing.assert_array_equal(
    apply('translate_x', image, 10)[:, 100:], image[:, :124]
  )
  np.testing.assert_array_equal(
    apply('translate_y', image, 10, -1)[:124], image[100:]
  )
  np.testing.assert_array_equal(
    apply('rotate', image, 20), randaugment.rotate(image, 60)
  )
  np.testing.assert_array_equal(
    apply('shear_x', image, 20, -1), randaugment.shear_x(image, -0.6)
  )


def test_cutout_is_a_square_about_a_pixel():
  image = np.zeros((224, 112, 1), np.uint8)
  areas = []
  for seed in range(200):
    rng = np.random.default_rng(seed)
    rows, columns = np.nonzero(randaugment.OPS['cutout'](image, 1, rng)[..., 0])
    height, width = np.ptp(rows) + 1, np.ptp(columns) + 1
    assert (height <= 80, width <= 40) == (True, True)
    assert len(rows) == height * width
    areas.append(len(rows))
  assert max(areas) == 80 * 40
  assert min(areas) < 80 * 40 / 2  # Near a corner.
  assert image.max() == 0


@pytest.mark.parametrize('channels', [1, 3])
@pytest.mark.parametrize('magnitude', [0, 10, 20])
def test_randaugment_is_deterministic_and_keeps_its_input(channels, magnitude):
  image = picture(channels=channels)
  before = image.copy()
  results = {
    seed: randaugment.randaugment(
      image, np.random.default_rng(seed), 2, magnitude
    )
    for seed in range(60)
  }
  np.testing.assert_array_equal(image, before)
  assert {x.shape for x in results.values()} == {image.shape}
  assert {x.dtype for x in results.values()} == {np.dtype(np.uint8)}
  assert len({x.tobytes() for x in results.values()}) > 10
  again = randaugment.randaugment(image, np.random.default_rng(7), 2, magnitude)
  np.testing.assert_array_equal(again, results[7])


def test_every_operation_is_drawn(monkeypatch):
  drawn = []
  for name in randaugment.OPS:
    monkeypatch.setitem(
      randaugment.OPS, name, lambda x, level, rng, n=name: drawn.append(n) or x
    )
  rng = np.random.default_rng(0)
  for _ in range(100):
    randaugment.randaugment(picture(), rng, 3, 10)
  assert len(drawn) == 300
  assert set(drawn) == set(randaugment.OPS)
  assert len(randaugment.OPS) == 16
