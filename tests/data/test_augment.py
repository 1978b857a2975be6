"""Crops and colours, on the host and on the device, by their formulas."""

import colorsys

import jax
import jax.numpy as jnp
import numpy as np
from pictures import picture
import PIL.Image
import pytest

from vit_jax.data.augmentation import augment
from vit_jax.data.augmentation import color_jitter
from vit_jax.data.augmentation import randaugment
from vit_jax.data.augmentation import transforms


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
def test_padded_crops_are_windows_of_the_padded_image(where, pad_mode):
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


def test_area_crops_have_the_aspect_ratio():
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
def test_resize_test_crops_the_centre(shape, resize, resized):
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


@pytest.mark.parametrize(
  'shape, resize, resized',
  [
    ((90, 61), 32, (47, 32)),
    ((61, 90), (30, 26), (30, 26)),
    ((20, 90), None, (24, 20)),
  ],
)
@pytest.mark.parametrize('interpolation', transforms.PILLOW)
def test_pixels_are_those_of_pillow(interpolation, shape, resize, resized):
  image = picture(0, *shape)
  name = interpolation.removesuffix('_antialias').upper()
  whole = PIL.Image.fromarray(image).resize(
    resized[::-1], PIL.Image.Resampling[name]
  )
  top, left = (resized[0] - 24) // 2, (resized[1] - 20) // 2
  want = np.asarray(whole)[top : top + 24, left : left + 20]
  how = {'interpolation': interpolation}
  transform = transforms.EvalImage((24, 20), resize, **how)
  on_host = transform.map({'image': image})['image']
  np.testing.assert_array_equal(on_host, want)
  pair = transforms.LitImage((24, 20), resize=resize, **how)
  np.testing.assert_array_equal(pair.map({'image': image})['image'], want)
  preprocess = augment.Preprocess((24, 20), resize_test=resize, **how)
  on_device = jax.jit(preprocess.eval)(image[None])[0] * 127.5 + 127.5
  np.testing.assert_allclose(on_device, want, atol=1.01)
  most = {'bilinear_antialias': 0.02, 'bicubic': 0.01}[interpolation]
  assert np.mean(np.abs(on_device - want) > 0.5) < most


JITTER = jax.jit(color_jitter.color_jitter, static_argnums=2)


def jitter(images, amounts, seed=0):
  images = jnp.asarray(images, jnp.float32)
  return np.asarray(JITTER(jax.random.key(seed), images, amounts))


def brightness_factors(num, amount, seed):
  dark = np.full((num, 1, 1, 3), 10.0)
  return jitter(dark, (amount, 0, 0, 0), seed)[:, :1, :1, :1] / 10


def test_brightness_multiplies_and_clips():
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


def test_hue_keeps_saturation_and_value():
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


def test_device_changes_do_not_depend_on_where_images_are_cropped():
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
