"""TIFF, GIF, AVIF and HEIC; the other formats are in test_transforms.py."""

import io
import struct

import cv2
import numpy as np
from pictures import picture
import PIL.Image
import PIL.ImageOps
import pytest

from vit_jax.data import decoding
from vit_jax.data import image_files
from vit_jax.data import inputs

RGB = picture()
GREY = RGB[..., 0]


def saved(array, kind, **options):
  file = io.BytesIO()
  PIL.Image.fromarray(array).save(file, kind, **options)
  return file.getvalue()


@pytest.mark.parametrize('compression', [None, 'tiff_lzw', 'tiff_deflate'])
def test_tiff_keeps_every_pixel(compression):
  data = saved(RGB, 'TIFF', compression=compression)
  np.testing.assert_array_equal(decoding.decode(data), RGB)
  grey = decoding.decode(saved(GREY, 'TIFF', compression=compression))
  np.testing.assert_array_equal(grey, GREY[..., None].repeat(3, -1))
  one = decoding.decode(data, channels=1)
  want = np.asarray(PIL.Image.fromarray(RGB).convert('L'))[..., None]
  np.testing.assert_array_equal(one, want)


def test_16_bits_are_those_of_a_png():
  deep = GREY.astype(np.uint16) * 257
  tiff, png = saved(deep, 'TIFF'), saved(deep, 'PNG')
  for channels in (1, 3):
    np.testing.assert_array_equal(
      decoding.decode(tiff, channels=channels),
      decoding.decode(png, channels=channels),
    )


def negative(bits):
  """Returns a TIFF of one pixel, 0 of `bits` bits, in which 0 is white."""
  size = bits // 8
  tags = [(256, 1), (257, 1), (258, bits), (259, 1), (262, 0)]
  tags += [(273, 8), (277, 1), (278, 1), (279, size)]
  data = struct.pack('<2sHI4sH', b'II', 42, 12, bytes(4), len(tags))
  for tag, value in tags:
    data += struct.pack('<HHII', tag, 4, 1, value)
  return data + bytes(4)


@pytest.mark.parametrize('bits', [8, 16])
def test_zero_is_white_where_a_tiff_says_so(bits):
  assert decoding.decode(negative(bits)).max() == 255


def colours(values=RGB, **options):
  """Returns a TIFF of several samples of 16 bits."""
  tifffile = pytest.importorskip('tifffile')
  file = io.BytesIO()
  tifffile.imwrite(file, values, photometric='rgb', **options)
  return file.getvalue()


DEEP = np.random.default_rng(0).integers(0, 1 << 16, RGB.shape, np.uint16)


@pytest.mark.parametrize(
  ('values', 'options'),
  [
    (DEEP, {}),
    (DEEP, {'byteorder': '>'}),
    (DEEP, {'compression': 'deflate'}),
    (np.moveaxis(DEEP, -1, 0), {'planarconfig': 'separate'}),
    (
      np.dstack([DEEP, DEEP[..., :1]]),
      {'extrasamples': ['unassalpha']},
    ),
  ],
)
def test_colours_of_16_bits_keep_them(values, options):
  data = colours(values, **options)
  for channels in (None, 3):
    got = decoding.decode(data, channels=channels)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, DEEP / np.float32(257))
  assert not decoding.is_picture(data)


def test_a_fourth_colour_is_a_channel():
  four = np.dstack([DEEP, DEEP[..., :1]])
  data = colours(four, extrasamples=['unspecified'])
  got = decoding.decode(data, channels=None)
  np.testing.assert_array_equal(got, four / np.float32(257))


@pytest.mark.parametrize(
  'extra, channels',
  [
    (['unspecified'], 4),
    (['unspecified', 'unspecified'], 5),
    (['unspecified'] * 3, 6),
    (['unassalpha'], None),
  ],
)
def test_samples_of_8_bits_beside_colours_are_channels(extra, channels):
  values = np.dstack([RGB, *(RGB[..., 0] for _ in extra)])
  data = colours(values, extrasamples=extra)
  got = decoding.decode(data, channels=None)
  want = values if channels else RGB
  np.testing.assert_array_equal(got, want)
  assert decoding.is_picture(data) == (channels is None)
  # Whoever asks for a picture gets one.
  np.testing.assert_array_equal(decoding.decode(data, channels=3), RGB)
  if channels:
    got = decoding.decode(data, channels=channels)
    np.testing.assert_array_equal(got, want)


def test_without_its_package_a_tiff_with_more_samples_is_a_picture(monkeypatch):
  data = colours(np.dstack([RGB, RGB[..., 0]]), extrasamples=['unspecified'])
  monkeypatch.setattr(decoding.stacks, 'can_read_tiffs', lambda: False)
  np.testing.assert_array_equal(decoding.decode(data, channels=None), RGB)
  assert decoding.is_picture(data)


@pytest.mark.parametrize('byteorder', ['<', '>'])
def test_big_tiffs_are_read(byteorder):
  data = colours(RGB, bigtiff=True, byteorder=byteorder)
  np.testing.assert_array_equal(decoding.decode(data), RGB)


def test_gif_gives_its_first_frame():
  palette = PIL.Image.fromarray(RGB).convert('P')
  other = PIL.Image.fromarray(RGB[::-1].copy()).convert('P')
  file = io.BytesIO()
  palette.save(file, 'GIF', save_all=True, append_images=[other])
  want = np.asarray(palette.convert('RGB'))
  np.testing.assert_array_equal(decoding.decode(file.getvalue()), want)


def test_avif_and_heic():
  smooth = cv2.GaussianBlur(RGB, (0, 0), 3)
  far = lambda data: np.abs(decoding.decode(data).astype(int) - smooth).mean()
  assert far(saved(smooth, 'AVIF', quality=95)) < 3
  heif = pytest.importorskip('pillow_heif')
  heif.register_heif_opener()
  assert far(saved(smooth, 'HEIF', quality=95)) < 3


def test_without_its_package_heic_says_what_to_install(monkeypatch):
  monkeypatch.setitem(__import__('sys').modules, 'pillow_heif', None)
  decoding._open_heif.cache_clear()
  data = b'\0\0\0\x18ftypheic\0\0\0\0mif1heic'
  with pytest.raises(ValueError, match=r"pip install 'vit_jax\[heic\]'"):
    decoding.decode(data)


def test_a_tiff_is_upright():
  exif = PIL.Image.Exif()
  exif[0x0112] = 6
  data = saved(RGB, 'TIFF', exif=exif)
  for exif in (False, True):
    np.testing.assert_array_equal(
      decoding.decode(data, exif=exif), np.rot90(RGB, -1)
    )


@pytest.mark.parametrize('orientation', range(1, 9))
def test_a_turned_jpeg_has_the_pixels_of_the_official_decoder(orientation):
  exif = PIL.Image.Exif()
  exif[0x0112] = orientation
  data = saved(RGB, 'JPEG', exif=exif)
  plain = PIL.Image.fromarray(decoding.decode(data))
  plain.getexif()[0x0112] = orientation
  want = np.asarray(PIL.ImageOps.exif_transpose(plain))
  np.testing.assert_array_equal(decoding.decode(data, exif=True), want)


def test_damaged_jpegs_are_refused_however_they_are_turned():
  pixels = np.random.default_rng(0).integers(
    256, size=(64, 64, 3), dtype=np.uint8
  )
  whole, refused = saved(pixels, 'JPEG'), 0
  for seed in range(40):
    damage = np.random.default_rng(seed).integers(256, size=200, dtype=np.uint8)
    data = whole[:900] + damage.tobytes() + whole[1100:]
    results = []
    for exif in (False, True):
      try:
        results.append(decoding.decode(data, exif=exif).tobytes())
      except ValueError as e:
        results.append(str(e))
        refused += 1
    assert results[0] == results[1]
  assert refused


@pytest.mark.parametrize('orientation', range(1, 9))
def test_a_stack_is_as_upright_as_a_picture(orientation):
  exif = PIL.Image.Exif()
  exif[0x0112] = orientation
  want = decoding.decode(saved(RGB, 'TIFF', exif=exif))
  tag = (0x0112, 'H', 1, orientation, True)
  deep = colours(RGB.astype(np.uint16) * 257, extratags=[tag])
  np.testing.assert_array_equal(decoding.decode(deep), want)


def test_a_tiff_without_a_single_picture_says_what_to_install(monkeypatch):
  monkeypatch.setitem(__import__('sys').modules, 'tifffile', None)
  file = io.BytesIO()
  pages = [PIL.Image.fromarray(RGB)] * 3
  pages[0].save(file, 'TIFF', save_all=True, append_images=pages[1:])
  with pytest.raises(ValueError, match=r'3 pages, .*vit_jax\[tiff\]'):
    decoding.decode(file.getvalue())
  with pytest.raises(ValueError, match=r'of floats, .*vit_jax\[tiff\]'):
    decoding.decode(saved(GREY.astype(np.float32) / 255, 'TIFF'))
  deep = cv2.imencode('.tiff', RGB.astype(np.uint16))[1].tobytes()
  with pytest.raises(ValueError, match=r'3 samples of 16 .*vit_jax\[tiff\]'):
    decoding.decode(deep)


@pytest.mark.parametrize('kind', ['TIFF', 'GIF', 'AVIF'])
def test_damaged_files_are_refused(kind):
  data = saved(RGB, kind)
  for cut in (5, 20, len(data) // 2):
    with pytest.raises(ValueError, match=f'a damaged {kind}|not a JPEG'):
      decoding.decode(data[:cut])


@pytest.mark.parametrize('kind', ['TIFF', 'GIF', 'AVIF'])
def test_every_error_of_pillow_is_damage(kind, monkeypatch):
  def fail(*args, **kwargs):
    raise RuntimeError('Failed to decode image')

  data = saved(RGB, kind)
  monkeypatch.setattr(PIL.Image.Image, 'convert', fail)
  with pytest.raises(ValueError, match=f'a damaged {kind}: Failed to decode'):
    decoding.decode(data)


def test_a_small_file_that_claims_to_be_huge_is_refused():
  tiff = struct.pack('<2sHIH', b'II', 42, 8, 9)
  tags = [(256, 4, 100_000), (257, 4, 100_000), (258, 3, 8), (259, 3, 1)]
  tags += [
    (262, 3, 1),
    (273, 4, 8),
    (277, 3, 1),
    (278, 4, 100_000),
    (279, 4, 10),
  ]
  for tag, kind, value in tags:
    tiff += struct.pack('<HHII', tag, kind, 1, value)
  with pytest.raises(ValueError, match='more pixels than'):
    decoding.decode(tiff + bytes(8))


def test_folders_and_predictions_read_them(tmp_path):
  for name, kind in (('a.tif', 'TIFF'), ('b.GIF', 'GIF'), ('c.avif', 'AVIF')):
    (tmp_path / name).write_bytes(saved(RGB, kind))
  (tmp_path / 'd.jp2').write_bytes(b'')
  found = image_files.find(tmp_path)
  assert len(found.images) == 3
  assert found.unread == {'.jp2': 1}
  assert len(inputs.find([str(tmp_path)])) == 3
