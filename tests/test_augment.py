"""RandAugment, colours, erasing, mixing: against Pillow or by their formulas."""

import colorsys
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax import losses
from vit_jax.data import augment
from vit_jax.data import color_jitter
from vit_jax.data import mixing
from vit_jax.data import randaugment
from vit_jax.data import transforms


def picture(seed=0, height=40, width=56, channels=3):
  """A picture with smooth areas, noise and a narrow range of red."""
  rng = np.random.default_rng(seed)
  y, x = np.mgrid[:height, :width]
  ramp = np.stack([y * 4, x * 3, y + x], axis=-1)[..., :channels]
  image = np.clip(ramp + rng.integers(0, 60, ramp.shape), 0, 255)
  image[..., 0] = image[..., 0] // 3 + 70
  return image.astype(np.uint8)


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
def test_geometry(ours, source):
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
def test_randaugment(channels, magnitude):
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


def test_training_images_are_distorted_after_the_crop():
  image = picture()
  how = {'size': (24, 16), 'area': (0.5, 1.0)}
  element = {'image': image, 'label': 3}
  plain = transforms.TrainImage(**how)
  distorted = transforms.TrainImage(**how, randaugment=(2, 10))
  for seed in range(5):
    rng = np.random.default_rng(seed)
    want = plain.random_map(element, rng)['image'].make()
    want = randaugment.randaugment(want, rng, 2, 10)
    got = distorted.random_map(element, np.random.default_rng(seed))
    np.testing.assert_array_equal(got['image'], want)


@pytest.mark.parametrize('pad_mode', ['zeros', 'reflect'])
@pytest.mark.parametrize('where', ['host', 'device'])
def test_padded_crops(where, pad_mode):
  y, x = np.mgrid[:16, :16]
  image = (50 + 10 * y + x).astype(np.uint8)[..., None]  # Tells its position.
  how = {'size': (16, 16), 'pad': 4, 'pad_mode': pad_mode, 'flip': False}
  if where == 'host':
    transform = transforms.TrainImage(**how)
    crops = [
      transform.random_map({'image': image}, np.random.default_rng(i))
      for i in range(300)
    ]
    crops = np.stack([crop['image'].make() for crop in crops])
  else:
    preprocess = augment.Preprocess(**how)
    train = jax.jit(preprocess.train)
    crops = train(jax.random.key(0), np.stack([image] * 300))
    crops = np.round(np.asarray(crops) * 127.5 + 127.5)
  padded = np.pad(
    image[..., 0], 4, mode={'zeros': 'constant'}.get(pad_mode, pad_mode)
  )
  windows = {
    padded[i : i + 16, j : j + 16].tobytes() for i in range(9) for j in range(9)
  }
  seen = {crop.astype(np.uint8).tobytes() for crop in crops}
  assert seen <= windows
  assert len(seen) > 70  # Of 81.


def test_ratio_of_area_crops():
  size, how = (64, 64), {'area': (0.2, 0.5), 'ratio': (1.5, 2.0), 'flip': False}
  y, x = np.mgrid[:64, :64]
  image = np.stack([x, y, y], axis=-1).astype(np.uint8)
  train = jax.jit(augment.Preprocess(size, **how).train)
  pixels = np.asarray(train(jax.random.key(0), np.stack([image] * 200)))
  # How fast x and y grow in the middle of a crop that was made square.
  width = pixels[:, 32, 40, 0] - pixels[:, 32, 24, 0]
  height = pixels[:, 40, 32, 1] - pixels[:, 24, 32, 1]
  ratio = width / height
  assert 1.45 <= ratio.min() < 1.55  # Rounded to whole pixels.
  assert 1.95 < ratio.max() <= 2.05
  transform = transforms.TrainImage((8, 8), **how)
  for seed in range(50):
    pending = transform.random_map(
      {'image': np.zeros((*size, 3), np.uint8)}, np.random.default_rng(seed)
    )['image']
    h, w = pending.image.shape[:2]
    assert (w + 0.5) / h >= 1.5
    assert (w - 0.5) / h <= 2


@pytest.mark.parametrize(
  'shape, resize, resized',
  [((40, 60), 32, (32, 48)), ((60, 40), 32, (48, 32)), ((40, 60), (30, 26), 0)],
)
def test_evaluation_takes_the_middle(shape, resize, resized):
  image = picture(0, *shape)
  height, width = resized or resize
  whole = transforms.resize(image, (height, width))
  top, left = (height - 24) // 2, (width - 20) // 2
  want = (whole[top : top + 24, left : left + 20] - 127.5) / 127.5
  sent = transforms.EvalImage((24, 20), resize).map({'image': image})['image']
  on_host = augment.normalize(transforms.stack([sent]))[0]
  np.testing.assert_allclose(on_host, want, atol=1e-4)
  preprocess = augment.Preprocess((24, 20), resize_test=resize)
  on_device = jax.jit(preprocess.eval)(image[None])[0]
  np.testing.assert_allclose(on_device, want, atol=1e-4)


JITTER = jax.jit(color_jitter.color_jitter, static_argnums=2)


def jitter(images, amounts, seed=0):
  images = jnp.asarray(images, jnp.float32)
  return np.asarray(JITTER(jax.random.key(seed), images, amounts))


def brightness_factors(num, amount, seed):
  dark = np.full((num, 1, 1, 3), 10.0)
  return jitter(dark, (amount, 0, 0, 0), seed)[:, :1, :1, :1] / 10


def test_brightness():
  images = np.full((100, 2, 2, 3), 100.0)
  images[:, 0, 0] = 230
  factors = brightness_factors(100, 0.4, 0)
  assert factors.min() == pytest.approx(0.6, abs=0.03)
  assert factors.max() == pytest.approx(1.4, abs=0.03)
  np.testing.assert_allclose(
    jitter(images, (0.4, 0, 0, 0)), np.clip(images * factors, 0, 255), rtol=1e-4
  )
  # As in torchvision, no factor is below 0.
  assert np.mean(brightness_factors(100, 3.0, 0) == 0) < 0.05


@pytest.mark.parametrize('amounts', [(0, 0.5, 0, 0), (0, 0, 0.5, 0)])
def test_contrast_and_saturation(amounts):
  images = np.stack([picture(i) for i in range(30)]) * 0.3 + 80.0
  grey = images @ [0.2989, 0.587, 0.114]
  start = grey.mean((1, 2))[:, None, None] if amounts[1] else grey
  got = jitter(images, amounts)
  # One factor an image, by which the distance from `start` grows.
  before, after = images - start[..., None], got - start[..., None]
  factors = (before * after).sum((1, 2, 3)) / (before**2).sum((1, 2, 3))
  np.testing.assert_allclose(
    after, before * factors[:, None, None, None], atol=1e-2
  )
  assert 0.5 <= factors.min() < 0.7
  assert 1.3 < factors.max() <= 1.5


def test_hue():
  images = np.stack([picture(i, 4, 4) for i in range(20)])
  images[0] = 77  # Grey has none.
  got = jitter(images, (0, 0, 0, 0.1)) / 255
  np.testing.assert_allclose(got[0], 77 / 255, atol=1e-6)
  turns = []
  for image, result in zip(images[1:], got[1:], strict=True):
    hsv = np.array(
      [colorsys.rgb_to_hsv(*p) for p in image.reshape(-1, 3) / 255]
    )
    new = np.array([colorsys.rgb_to_hsv(*p) for p in result.reshape(-1, 3)])
    np.testing.assert_allclose(new[:, 1:], hsv[:, 1:], atol=1e-4)
    turn = (new[:, 0] - hsv[:, 0] + 0.5) % 1 - 0.5
    np.testing.assert_allclose(turn, turn[0], atol=1e-3)
    turns.append(turn[0])
  assert -0.1 <= min(turns) < -0.05
  assert 0.05 < max(turns) <= 0.1


def test_the_order_of_changes_is_random():
  images = np.array([100.0, 220.0]).reshape(1, 1, 2, 1).repeat(3, -1)
  orders = set()
  for seed in range(20):
    brighter = brightness_factors(1, 0.9, seed)
    spread = jitter(images / 4, (0, 0.9, 0, 0), seed)
    factor = (spread[0, 0, 1, 0] - spread[0, 0, 0, 0]) / 30

    def brighten(x, factor=brighter):
      return np.clip(x * factor, 0, 255)

    def contrast(x, factor=factor):
      mean = x.mean() * np.sum([0.2989, 0.587, 0.114])
      return np.clip(mean + factor * (x - mean), 0, 255)

    got = jitter(images, (0.9, 0.9, 0, 0), seed)
    one, other = contrast(brighten(images)), brighten(contrast(images))
    is_one, is_other = (np.allclose(got, x, atol=0.1) for x in (one, other))
    assert is_one or is_other
    if is_one != is_other:
      orders.add(is_one)
  assert orders == {True, False}


def test_grey_images_have_no_hue():
  images = np.stack([picture(channels=1)] * 3)
  np.testing.assert_array_equal(jitter(images, (0, 0, 0.4, 0.1)), images)
  assert np.any(jitter(images, (0.4, 0, 0.4, 0.1)) != images)


def test_random_erasing():
  images = jnp.full((400, 20, 30, 3), 9.0)
  erase = functools.partial(mixing.random_erasing, probability=0.25)
  got = jax.jit(erase)(jax.random.key(0), images)
  erased = np.asarray(got != 9)
  assert np.all(erased == erased[..., :1])
  count = 0
  noise = []
  for image, mask in zip(np.asarray(got), erased[..., 0], strict=True):
    if not mask.any():
      continue
    count += 1
    rows, columns = np.nonzero(mask)
    height, width = np.ptp(rows) + 1, np.ptp(columns) + 1
    assert len(rows) == height * width
    assert len(rows) <= 0.33 * 600 * 1.1  # Sides are rounded.
    noise.append(image[mask].ravel())
  assert 70 < count < 130
  noise = np.concatenate(noise)
  assert abs(noise.mean()) < 0.05
  assert noise.std() == pytest.approx(1, abs=0.05)
  # Up to the border on all sides.
  rows, columns = erased[..., 0].any(2), erased[..., 0].any(1)
  for lines in (rows, columns):
    assert np.any(lines[:, 0] & ~lines[:, -1])
    assert np.any(lines[:, -1] & ~lines[:, 0])


MIXES = {
  'mixup': mixing.Mix(5, mixup=0.8),
  'cutmix': mixing.Mix(5, cutmix=1.0),
  'both': mixing.Mix(5, mixup=0.8, cutmix=1.0),
}


def mix(name, seed):
  """Mixes images whose pixels are their number, and whose labels too."""
  images = np.ones((5, 12, 16, 3)) * np.arange(5.0)[:, None, None, None]
  labels = np.arange(5, dtype=np.int32)
  mixed, targets = jax.jit(MIXES[name])(
    jax.random.key(seed), images.astype(np.float32), labels
  )
  # Part of the image itself in each pixel; the others are of the one before.
  mixed, before = np.asarray(mixed), np.roll(images, 1, axis=0)
  own = (mixed - before) / (images - before)
  return own, np.asarray(targets)


@pytest.mark.parametrize('name', MIXES)
def test_targets_are_the_shares_of_pixels(name):
  kinds = set()
  for seed in range(20):
    own, targets = mix(name, seed)
    np.testing.assert_allclose(own, own[:1].repeat(5, 0), atol=1e-5)
    np.testing.assert_allclose(targets.sum(-1), 1, atol=1e-6)
    share = own.mean()
    want = share * np.eye(5) + (1 - share) * np.eye(5)[[4, 0, 1, 2, 3]]
    np.testing.assert_allclose(targets, want, atol=1e-5)
    is_cut = np.all((own < 1e-5) | (own > 1 - 1e-5))
    kinds.add('cutmix' if is_cut else 'mixup')
    if is_cut:
      rows, columns = np.nonzero(own[0, ..., 0] < 0.5)
      if len(rows):
        assert len(rows) == (np.ptp(rows) + 1) * (np.ptp(columns) + 1)
    else:
      assert 0.5 <= share <= 1
      np.testing.assert_allclose(own, share, atol=1e-5)
  assert kinds == ({'mixup', 'cutmix'} if name == 'both' else {name})


def test_shares_are_beta_distributed():
  keys = jax.random.split(jax.random.key(0), 2000)
  sample = lambda mix: np.asarray(
    jax.jit(jax.vmap(lambda key: mix.own(key, 32, 32).mean()))(keys)
  )
  # Of max(x, 1 - x), x uniform.
  share = sample(mixing.Mix(2, mixup=1.0))
  assert share.mean() == pytest.approx(0.75, abs=0.015)
  assert share.std() == pytest.approx(0.25 / 3**0.5, abs=0.01)
  # Alpha 0.2 mostly leaves images as they are.
  assert np.median(sample(mixing.Mix(2, mixup=0.2))) > 0.95
  # Half of the image on average, if no rectangle went beyond the border.
  assert 0.55 < sample(mixing.Mix(2, cutmix=1.0)).mean() < 0.8


@pytest.mark.parametrize('loss', ['softmax', 'sigmoid'])
@pytest.mark.parametrize('smoothing', [0.0, 0.1])
def test_losses_of_shares_are_shares_of_losses(loss, smoothing):
  logits = np.random.RandomState(0).randn(4, 3).astype(np.float32)
  one, other = np.array([0, 1, 2, 0]), np.array([1, 1, 0, 2])
  targets = (0.7 * np.eye(3)[one] + 0.3 * np.eye(3)[other]).astype(np.float32)
  loss_fn = losses.LOSSES[loss]
  got = loss_fn(*map(jnp.asarray, (logits, targets)), smoothing)
  parts = [
    loss_fn(*map(jnp.asarray, (logits, x)), smoothing) for x in (one, other)
  ]
  np.testing.assert_allclose(got, 0.7 * parts[0] + 0.3 * parts[1], rtol=1e-5)


def test_photographs_and_small_images_are_changed_alike():
  images = np.stack([picture(i, 16, 16) for i in range(8)])
  how = {
    'size': (16, 16),
    'area': (1.0, 1.0),
    'ratio': (1.0, 1.0),
    'flip': False,
    'color_jitter': (0.4, 0.4, 0.4, 0.1),
    'random_erasing': 0.5,
  }
  small, photographs = (
    jax.jit(augment.Preprocess(**how, on_device=on_device).train)(
      jax.random.key(3), images
    )
    for on_device in (True, False)
  )
  np.testing.assert_allclose(small, photographs, atol=1e-3)
  plain = augment.Preprocess((16, 16), on_device=False)
  assert np.abs(plain.train(jax.random.key(3), images) - small).max() > 0.5
