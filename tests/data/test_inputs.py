"""Images as people name or hold them become the pixels of their files."""

import cv2
import numpy as np
from pictures import picture
from PIL import Image
import pytest

from vit_jax.data import inputs
from vit_jax.data import pipeline
from vit_jax.runtime import errors

WIDE = np.arange(65536, dtype=np.uint16).reshape(256, 256)


def decoded(image, **settings):
  channels = settings.get('channels', 3)
  source = inputs.InputSource([image], channels)
  return pipeline.Decoded(source, **settings)[0]['image']


def as_file(image, path):
  image.save(path)
  return str(path)


def transparent():
  image = Image.fromarray(picture())
  image.putalpha(Image.fromarray(picture(1, channels=1)[..., 0]))
  return image


@pytest.mark.parametrize('channels', [1, 3])
@pytest.mark.parametrize('mode', ['1', 'L', 'LA', 'P', 'RGB', 'RGBA', 'I;16'])
def test_pictures_in_png_modes_equal_their_files(mode, channels, tmp_path):
  image = transparent()
  image = Image.fromarray(WIDE) if mode == 'I;16' else image.convert(mode)
  assert image.mode == mode
  np.testing.assert_array_equal(
    decoded(image, channels=channels),
    decoded(as_file(image, tmp_path / 'x.png'), channels=channels),
  )


def test_a_palette_with_transparency_equals_its_file(tmp_path):
  image = Image.fromarray(picture()).quantize(16)
  image.info['transparency'] = 3
  path = as_file(image, tmp_path / 'x.png')
  assert Image.open(path).info['transparency'] == 3
  np.testing.assert_array_equal(decoded(image), decoded(path))


@pytest.mark.parametrize('mode', ['I;16', 'I;16L', 'I;16B'])
def test_a_picture_of_16_bits_keeps_its_range(mode):
  data = WIDE.astype('>u2' if mode.endswith('B') else '<u2').tobytes()
  pixels = decoded(Image.frombytes(mode, WIDE.shape, data))
  assert pixels.mean() / 255 == pytest.approx(0.5, abs=0.001)
  np.testing.assert_array_equal(pixels[..., 0], WIDE // 256)


@pytest.mark.parametrize('mode', ['CMYK', 'YCbCr'])
def test_pictures_in_jpeg_modes_nearly_equal_their_files(mode, tmp_path):
  image = Image.fromarray(cv2.blur(picture(), (9, 9))).convert(mode)
  path = str(tmp_path / 'x.jpg')
  image.save(path, quality=100, subsampling=0)
  difference = decoded(image).astype(int) - decoded(path)
  assert np.abs(difference).mean() < 1.5


@pytest.mark.parametrize(
  ('mode', 'same_as', 'most'),
  [('La', 'L', 2), ('RGBa', 'RGB', 2), ('PA', 'P', 0), ('RGBX', 'RGB', 0),
   ('HSV', 'RGB', 8)],
)  # fmt: skip
def test_converted_pictures_equal_their_originals(mode, same_as, most):
  image = Image.fromarray(picture())
  if mode in ('La', 'RGBa'):  # Almost opaque: dividing by it is exact enough.
    image.putalpha(250)
    image = image.convert(mode.upper())
  elif mode == 'PA':
    image = image.convert('P')
  image, want = image.convert(mode), image.convert(same_as)
  difference = decoded(image).astype(int) - decoded(want)
  assert np.abs(difference).max() <= most


@pytest.mark.parametrize('mode', ['I', 'F'])
def test_pictures_without_a_range_are_refused(mode):
  image = Image.new(mode, (4, 4))
  with pytest.raises(
    errors.UserError, match=f"image 0 has Pillow's mode {mode}"
  ):
    decoded(image)


def test_an_empty_picture_is_refused():
  with pytest.raises(errors.UserError, match="image 0, of Pillow's mode RGB"):
    decoded(Image.new('RGB', (0, 0)))


@pytest.mark.parametrize('exif', [False, True])
def test_exif_turns_opened_files_like_files(exif, tmp_path):
  tag = Image.Exif()
  tag[0x0112] = 6
  path = tmp_path / 'x.jpg'
  Image.fromarray(picture()).save(path, exif=tag)
  image = Image.open(path)
  want = decoded(str(path), exif=exif).shape
  assert decoded(image, exif=exif).shape == want
  # One that was turned by hand is upright.
  turned = image.transpose(Image.Transpose.ROTATE_270)
  assert decoded(turned, exif=exif).shape == (56, 40, 3)


@pytest.mark.parametrize(
  'array',
  [
    picture() / 255,
    picture() > 99,
    picture().astype(np.int32) - 300,
    np.zeros((4, 4, 2), np.uint8),
    np.zeros((0, 4, 3), np.uint8),
  ],
)
def test_arrays_that_are_no_images_are_refused(array):
  with pytest.raises(errors.UserError, match='^image 0 (is|has) .*[^.]\\.$'):
    decoded(array)


@pytest.mark.parametrize('channels', [1, 3])
def test_arrays_of_any_memory_layout_are_read(channels):
  image = picture()[::-1, ::2, ::-1]
  np.testing.assert_array_equal(
    decoded(image, channels=channels), decoded(image.copy(), channels=channels)
  )


def test_images_of_more_bits_than_the_first_are_refused():
  source = inputs.InputSource([WIDE], 1)
  with pytest.raises(errors.UserError, match='more than 8 bits, unlike the'):
    pipeline.Decoded(source, channels=1)[0]


def test_files_that_are_not_read_are_counted(tmp_path, caplog):
  (tmp_path / 'more').mkdir()
  image = Image.fromarray(picture())
  for name in ('a.JPG', 'b.jp2', 'more/c.JP2', 'more/d.png', '.e.jp2', 'f'):
    image.save(tmp_path / name, 'PNG')
  found = inputs.find([str(tmp_path)])
  assert [x.removeprefix(f'{tmp_path}/') for x in found] == [
    'a.JPG',
    'more/d.png',
  ]
  assert f'{tmp_path}: 3 files are not read, 2 .jp2, 1 no suffix' in caplog.text
  (tmp_path / 'a.JPG').unlink()
  (tmp_path / 'more' / 'd.png').unlink()
  with pytest.raises(errors.UserError, match='has no images .*, but 2 .jp2, 1'):
    inputs.find([str(tmp_path)])


def test_a_missing_image_gives_advice(tmp_path):
  path = str(tmp_path / 'x.jpg')
  with pytest.raises(errors.UserError) as e:
    decoded(path)
  assert str(e.value) == (
    f'There is no image {path}: put it back, or leave such images out with'
    f' on_bad_image=skip.'
  )


def test_an_address_that_is_skipped_is_named():
  address = 'http://127.0.0.1:9/x.jpg'
  data = pipeline.Decoded(inputs.InputSource([address], 3), on_bad_image='skip')
  assert not data[0]['mask']
  assert data.skipped.keys() == {address}
