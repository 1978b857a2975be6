"""The pixels are TensorFlow's, on the host and on the device."""

import cv2
from golden_files import golden_arrays
import jax
import numpy as np
import pytest

from vit_jax.data import decoding
from vit_jax.data.augmentation import augment
from vit_jax.data.augmentation import crops
from vit_jax.data.augmentation import transforms

TF = golden_arrays('tf_pixels.npz')
FILES = [name[5:] for name in TF if name.startswith('file/')]
# TensorFlow's and OpenCV's inverse transforms of CMYK files differ a little.
EXACT = [name for name in FILES if name != 'cmyk.jpg']

# Of TensorFlow 2.21, `sample_distorted_bounding_box` with area (0.05, 1), 20,000
# crops: mean part of the area, its standard deviation, means of height, width,
# top and left.
CROPS = {
  (375, 500): (0.3428, 0.2221, 235.4, 244.5, 68.9, 127.4),
  (32, 32): (0.3793, 0.2502, 18.35, 18.79, 6.32, 6.08),
  (500, 500): (0.3739, 0.2426, 285.1, 292.4, 106.3, 102.6),
  (500, 333): (0.2930, 0.1842, 208.2, 211.8, 145.4, 60.5),
  (40, 20): (0.2374, 0.1443, 13.05, 13.26, 12.89, 2.92),
}


def file(name):
  return TF[f'file/{name}'].tobytes()


@pytest.mark.parametrize('name', EXACT)
def test_decoding_equals_tensorflow_bit_for_bit(name):
  np.testing.assert_array_equal(
    decoding.decode(file(name)), TF[f'decoded/{name}']
  )


def test_cmyk_is_close_to_tensorflow():
  got = decoding.decode(file('cmyk.jpg')).astype(int)
  assert np.abs(got - TF['decoded/cmyk.jpg']).max() <= 3


@pytest.mark.parametrize('name', EXACT)
def test_evaluation_pixels_equal_tensorflow(name):
  want = (TF[f'resized/{name}'] - 127.5) / 127.5
  image = decoding.decode(file(name))
  resized = transforms.resize(image, (48, 31))
  np.testing.assert_allclose((resized - 127.5) / 127.5, want, atol=1e-4)
  sent = transforms.stack([transforms.eval_image(image, (48, 31))])
  assert sent.dtype == np.uint16
  got = augment.normalize(sent)[0]
  np.testing.assert_allclose(got, want, atol=1e-4)


def test_device_resize_equals_tensorflow():
  image = TF['decoded/rgb.png']
  got = augment.Preprocess((48, 31)).eval(image[None])[0]
  want = (TF['resized/rgb.png'] - 127.5) / 127.5
  np.testing.assert_allclose(got, want, atol=1e-4)


@pytest.mark.parametrize('name', FILES)
def test_files_decode_to_one_channel(name):
  image = decoding.decode(file(name), channels=1)
  assert image.shape == (40, 53, 1)
  assert image.std() > 20


def test_webp_and_exif():
  _, data = cv2.imencode('.webp', TF['decoded/rgb.png'][..., ::-1])
  image = decoding.decode(data.tobytes())
  assert np.abs(image.astype(int) - TF['decoded/rgb.png']).mean() < 8
  upright = decoding.decode(file('exif.jpg'), exif=True)
  stored = decoding.decode(file('exif.jpg'))
  assert upright.shape == (53, 40, 3)
  turned = np.rot90(stored, -1).astype(int)
  assert np.abs(upright - turned).mean() < 3


@pytest.mark.parametrize(
  'data', [b'', b'text', b'\xff\xd8', file('rgb.png')[:9]]
)
def test_bytes_that_are_not_an_image_raise(data):
  with pytest.raises(ValueError, match=r'.'):
    decoding.decode(data)


@pytest.mark.parametrize('size', CROPS)
@pytest.mark.parametrize('where', ['host', 'device'])
def test_area_crops_are_distributed_as_tensorflows(size, where):
  height, width = size
  if where == 'host':
    rng = np.random.default_rng(0)
    boxes = [
      crops.sample_area_crop(rng, *size, (0.05, 1.0)) for _ in range(20_000)
    ]
  else:
    key = jax.random.key(0)
    boxes = crops.sample_area_crops(key, 20_000, *size, (0.05, 1.0))
  top, left, h, w = np.asarray(boxes, float).T
  assert top.min() >= 0
  assert left.min() >= 0
  assert (top + h).max() <= height
  assert (left + w).max() <= width
  area = h * w / (height * width)
  got = (area.mean(), area.std(), h.mean(), w.mean(), top.mean(), left.mean())
  # Four standard errors of the less certain numbers, top and left.
  assert got == pytest.approx(CROPS[size], rel=0.035)


def test_crops_keep_to_their_area():
  rng = np.random.default_rng(0)
  boxes = [crops.sample_area_crop(rng, 100, 80, (0.5, 0.6)) for _ in range(200)]
  areas = np.array([h * w / 8000 for _, _, h, w in boxes])
  assert 0.5 <= areas.min() < 0.52
  assert 0.58 < areas.max() <= 0.6


def test_an_impossible_crop_is_the_whole_image():
  rng = np.random.default_rng(0)
  # No crop of a strip has half of its area and a ratio near 1.
  crop = crops.sample_area_crop(rng, 2, 100, (0.5, 1.0))
  assert crop == (0, 0, 2, 100)
  boxes = crops.sample_area_crops(jax.random.key(0), 5, 2, 100, (0.5, 1.0))
  np.testing.assert_array_equal(boxes, [[0, 0, 2, 100]] * 5)


def test_device_crops_equal_host_crops():
  rng = np.random.default_rng(0)
  images = rng.integers(0, 256, (64, 32, 32, 3)).astype(np.uint8)
  boxes = crops.sample_area_crops(jax.random.key(1), 64, 32, 32, (0.05, 1.0))
  got = augment.crop_and_resize(images, boxes, (40, 24))
  for image, crop, resized in zip(images, np.asarray(boxes), got, strict=True):
    top, left, h, w = crop
    want = transforms.resize(image[top : top + h, left : left + w], (40, 24))
    np.testing.assert_allclose(resized, want, atol=1e-2)


def train_image(transform, image, seed=0):
  result = transform.random_map(
    {'image': image, 'label': 3}, np.random.default_rng(seed)
  )
  return {**result, 'image': transforms.stack([result['image']])[0]}


@pytest.mark.parametrize('channels', [1, 3, 5])
@pytest.mark.parametrize('dtype', [np.uint8, np.uint16])
def test_stacked_images_equal_single_ones(channels, dtype):
  rng = np.random.default_rng(0)
  image = rng.integers(0, 256, (30, 40, channels)).astype(dtype)
  crop = image[3:20, 5:31]
  pending = [
    transforms.Pending(crop, (24, 17), flip=flip) for flip in (False, True)
  ]
  plain, mirrored = transforms.stack(pending)
  want = cv2.resize(crop, (17, 24)).reshape(24, 17, channels)
  np.testing.assert_array_equal(plain, want)
  np.testing.assert_array_equal(mirrored, want[:, ::-1])
  assert plain.dtype == dtype


def test_training_images_are_cropped_and_mirrored():
  image = np.zeros((20, 30, 3), np.uint8)
  image[:, 15:] = 200
  transform = transforms.TrainImage((8, 8), area=(0.9, 1.0))
  results = [train_image(transform, image, seed) for seed in range(40)]
  assert {r['image'].shape for r in results} == {(8, 8, 3)}
  assert {r['label'] for r in results} == {3}
  mirrored = sum(r['image'][4, 0, 0] > 100 for r in results)
  assert 10 < mirrored < 30
  assert np.all(image[:, :15] == 0)  # The input is as it was.
  unflipped = transforms.TrainImage((8, 8), area=(0.9, 1.0), flip=False)
  for seed in range(20):
    assert train_image(unflipped, image, seed)['image'][4, 0, 0] < 100


def test_resize_then_random_window():
  ramp = np.tile(
    np.arange(0, 256, 8, dtype=np.uint8)[None, :, None], (32, 1, 1)
  )
  transform = transforms.TrainImage((32, 32), resize=40, flip=False)
  starts = {
    int(train_image(transform, ramp, s)['image'][0, 0, 0]) for s in range(60)
  }
  assert len(starts) > 5  # One for each of 9 columns.
  preprocess = augment.Preprocess((32, 32), resize=40, flip=False)
  images = preprocess.train(jax.random.key(0), np.stack([ramp] * 60))
  assert images.shape == (60, 32, 32, 1)
  assert len(np.unique(np.round(images[:, 0, 0], 3))) > 5
  # A window, not a squeezed image: neighbours differ by 32 / 40 of a step.
  slope = np.diff(np.asarray(images)[0, 16, 8:24, 0]).mean() * 127.5
  assert slope == pytest.approx(8 * 32 / 40, rel=0.05)


def test_device_preprocessing_depends_on_the_key():
  images = np.random.RandomState(0).randint(0, 256, (4, 32, 32, 3), np.uint8)
  train = jax.jit(augment.Preprocess((16, 16)).train)
  one, same, other = (train(jax.random.key(seed), images) for seed in (0, 0, 1))
  np.testing.assert_array_equal(one, same)
  assert np.abs(one - other).max() > 0.1
  assert np.abs(one).max() <= 1
  assert np.asarray(one).std() > 0.1


def test_images_from_the_host_are_only_normalised():
  images = np.array([0, 127, 255], np.uint8).reshape(3, 1, 1, 1)
  preprocess = augment.Preprocess((1, 1), on_device=False)
  want = (images.astype(np.float32) - 127.5) / 127.5
  np.testing.assert_allclose(preprocess.train(jax.random.key(0), images), want)
  np.testing.assert_allclose(preprocess.eval(images), want)
