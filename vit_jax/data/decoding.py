"""Files of images to pixels."""

import functools
import io
import struct
from typing import Any, NamedTuple

import cv2
from jaxtyping import UInt8
import numpy as np
import PIL.Image
import PIL.ImageOps
import simplejpeg

from vit_jax.data import stacks
from vit_jax.runtime import errors

Image = stacks.Pixels
Picture = UInt8[np.ndarray, 'H W C']

FORMATS = 'JPEG, PNG, WebP, BMP, TIFF, GIF, AVIF, HEIC or .npy'

_MAX_PIXELS = 1 << 27  # Twice as many as the largest image of ImageNet.

# First bytes of JPEG, PNG, BMP, WebP.
_PICTURES = (b'\xff\xd8', b'\x89PNG', b'BM', b'RIFF')

# Tags of TIFFs.
_BITS, _PHOTOMETRIC, _SAMPLES, _EXTRA_SAMPLES = 258, 262, 277, 338

# Values of _EXTRA_SAMPLES for premultiplied and for straight transparency.
_ALPHA_SAMPLES = (1, 2)

# Samples of a colour by _PHOTOMETRIC, 1 for others: RGB, CMYK, YCbCr, Lab.
_COLOUR_SAMPLES = {2: 3, 5: 4, 6: 3, 8: 3}

# Modes of Pillow whose last sample is transparency.
_ALPHA = ('RGBA', 'LA', 'PA')

# By channel count: names in OpenCV and simplejpeg.
_DECODERS = {
  1: (cv2.IMREAD_GRAYSCALE, 'GRAY'),
  3: (cv2.IMREAD_COLOR_RGB, 'RGB'),
}


def decode(
  data: bytes, *, channels: int | None = 3, exif: bool = False
) -> Image:
  """Decodes an image file of any format of `FORMATS` to [H, W, channels].

  Pictures become uint8, stacks what `stacks.as_pixels` returns; with `channels` None
  pictures have three, stacks their own. A TIFF of several samples of 16 bits, such as
  colours, is a stack; of 8 bits, one whose samples are more than colours and
  transparency is, unless 1 or 3 channels are asked for. Greyscale, CMYK, palette and
  other 16-bit files are converted; transparency is dropped; a GIF gives its first
  frame. JPEG gives the pixels of `tf.image.decode_jpeg` bit for bit. `exif` turns the
  image upright by its EXIF tag; TIFF and HEIC always are. Raises ValueError at bytes
  that are not such an image.
  """
  array = read_stack(data, channels)
  if array is not None:
    return stacks.as_pixels(array, channels)
  return _decode_picture(data, 3 if channels is None else channels, exif)


def read_stack(data: bytes, channels: int | None = None) -> np.ndarray | None:
  """Returns the array in a .npy file or TIFF; None for pictures, see `decode`.

  Raises ValueError at a damaged file.
  """
  if stacks.is_npy(data):
    return stacks.read_npy(data)
  if _pillow_kind(data) == 'TIFF' and (found := _stack_kind(data)):
    wants_picture = channels in _DECODERS or (
      channels is None and not stacks.can_read_tiffs()
    )
    if found.has_picture and wants_picture:
      return None
    array = stacks.read_tiff(data, found.what)
    return array[..., :-1] if found.has_alpha else array
  return None


def _decode_picture(data: bytes, channels: int, exif: bool) -> Picture:
  if channels not in _DECODERS:
    raise ValueError(
      f'it is a picture of 1 or 3 channels, must have {channels}: save such'
      f' images as .npy or TIFF'
    )
  _silence()
  flags, colorspace = _DECODERS[channels]
  is_jpeg = data.startswith(b'\xff\xd8')
  header = simplejpeg.decode_jpeg_header(data) if is_jpeg else None
  if kind := _pillow_kind(data):
    return _decode_by_pillow(data, kind, channels, exif)
  height, width = header[:2] if header else _size(data)
  _check_size(height, width)
  # simplejpeg cannot convert CMYK to RGB, OpenCV can.
  if header and header[2] != 'CMYK':
    pixels = _decode_jpeg(data, colorspace)
    if exif and (tag := _orientation(data)) != 1:
      pixels = stacks.turned_picture(pixels, tag)
    return pixels
  if not exif:
    flags |= cv2.IMREAD_IGNORE_ORIENTATION
  try:
    image = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
  except cv2.error as e:
    raise ValueError(str(e).strip()) from e
  if image is None:
    raise ValueError('a damaged image')
  return image.reshape(*image.shape[:2], channels)


def is_picture(data: bytes) -> bool:
  """Whether a file is decoded to 1 or 3 channels of 8 bits."""
  if (kind := _pillow_kind(data)) != 'TIFF':
    return bool(kind) or data.startswith(_PICTURES)
  found = _stack_kind(data)
  return not found or (found.has_picture and not stacks.can_read_tiffs())


def as_pixels(
  image: bytes | np.ndarray, channels: int | None = None, exif: bool = False
) -> Image:
  """Returns the pixels of an image of a source, see `decode`.

  `image` is a file, or an array.
  """
  if isinstance(image, np.ndarray):
    return stacks.as_pixels(image, channels)
  return decode(image, channels=channels, exif=exif)


def _check_size(height: int, width: int) -> None:
  if height * width > _MAX_PIXELS:
    raise ValueError(
      f'{height} x {width} pixels, more than the {_MAX_PIXELS} that are read'
    )


def _pillow_kind(data: bytes) -> str:
  """Returns the format of a file that Pillow must open; '' for others."""
  if data[:4] in (b'II*\0', b'MM\0*', b'II+\0', b'MM\0+'):
    return 'TIFF'
  if data[:4] == b'GIF8':
    return 'GIF'
  if data[4:8] == b'ftyp':
    return 'AVIF' if data[8:12] in (b'avif', b'avis') else 'HEIF'
  return ''


class _Stack(NamedTuple):
  """A TIFF that is neither an 8-bit picture nor a 16-bit grey one."""

  what: str
  has_alpha: bool = False
  has_picture: bool = False  # In its first samples, of 8 bits.


def _stack_kind(data: bytes) -> _Stack | None:
  """Returns what a TIFF is; None if it is read as a picture."""
  try:
    with PIL.Image.open(io.BytesIO(data), formats=['TIFF']) as picture:
      _check_size(picture.height, picture.width)
      if (pages := getattr(picture, 'n_frames', 1)) > 1:
        return _Stack(f'a TIFF of {pages} pages')
      wide = {'I': '32-bit integers', 'F': 'floats'}
      if picture.mode in wide:
        return _Stack(f'a TIFF of {wide[picture.mode]}')
      bits = max(_tag(picture, _BITS, (1,)))
      samples = _tag(picture, _SAMPLES, 1)
      if bits > 8 and samples > 1:  # Pillow drops bits, or mixes planes.
        what = f'a TIFF of {samples} samples of {bits} bits'
        return _Stack(what, picture.mode in _ALPHA)
      colours = _COLOUR_SAMPLES.get(_tag(picture, _PHOTOMETRIC, 1), 1)
      # As Pillow does, without the tag: one sample more is transparency.
      extra = _tag(picture, _EXTRA_SAMPLES, _ALPHA_SAMPLES[:1])
      alpha = sum(kind in _ALPHA_SAMPLES for kind in extra)
      if samples > colours + alpha:  # Such as infrared.
        what = f'a TIFF of {samples} samples, of which {colours} are colours'
        return _Stack(what, has_picture=True)
      return None
  except PIL.Image.DecompressionBombError:
    return None  # Refused when it is decoded.
  except (MemoryError, ValueError):
    raise
  except Exception:  # Pillow raises errors of many kinds.
    # Pillow knows few combinations of channels and bits.
    return _Stack('a damaged TIFF, or one of other channels than pictures have')


def _tag(picture: PIL.Image.Image, number: int, default: Any) -> Any:
  """Returns a tag of a TIFF; the default for other pictures."""
  return getattr(picture, 'tag_v2', {}).get(number, default)


def _decode_by_pillow(
  data: bytes, kind: str, channels: int, exif: bool
) -> Picture:
  """Returns the only picture of a file, or the first frame of a GIF."""
  if kind == 'HEIF':
    _open_heif()
  try:
    with PIL.Image.open(io.BytesIO(data), formats=[kind]) as picture:
      _check_size(picture.height, picture.width)
      if picture.mode in ('I', 'F'):
        raise ValueError(
          f"a {kind} of Pillow's mode {picture.mode}, whose values have no fixed"
          f' range: save it with 8 or 16 bits'
        )
      turned = PIL.ImageOps.exif_transpose(picture) if exif else picture
      array = _as_array(turned, channels)
      # Pillow heeds it with 8 bits.
      is_negative = _tag(picture, _PHOTOMETRIC, 1) == 0
      return 255 - array if is_negative and _is_deep(picture) else array
  except PIL.Image.DecompressionBombError as e:
    raise ValueError(f'more pixels than the {_MAX_PIXELS} that are read') from e
  except (MemoryError, ValueError):
    raise
  except Exception as e:  # Pillow raises errors of many kinds.
    raise ValueError(f'a damaged {kind}: {errors.first_line(e)}') from e


def _is_deep(picture: PIL.Image.Image) -> bool:
  return picture.mode.startswith('I;16')


def _as_array(picture: PIL.Image.Image, channels: int) -> Picture:
  if _is_deep(picture):  # As OpenCV does: the upper 8 bits.
    grey = (np.asarray(picture).astype(np.uint16) >> 8).astype(np.uint8)
    return grey[..., None].repeat(channels, axis=-1)
  converted = picture.convert('L' if channels == 1 else 'RGB')
  return np.asarray(converted).reshape(picture.height, picture.width, channels)


@functools.cache
def _open_heif() -> None:
  """Lets Pillow open HEIC files; raises ValueError if it cannot."""
  try:
    import pillow_heif
  except ImportError as e:
    raise ValueError(
      "a HEIC file, which needs pip install 'vit_jax[heic]'"
    ) from e
  pillow_heif.register_heif_opener()


@functools.cache
def _silence() -> None:
  """Keeps OpenCV from printing the errors that it raises or returns."""
  logs = getattr(cv2.utils, 'logging', cv2)  # It moved in OpenCV 5.
  logs.setLogLevel(0)


def _size(data: bytes) -> tuple[int, int]:
  """Returns (height, width) from the header of a PNG or BMP.

  OpenCV would allocate memory for a billion pixels, which a file of a kilobyte
  can claim. A WebP cannot claim so many and has no simple header: (0, 0).
  """
  try:
    if data.startswith(b'\x89PNG\r\n\x1a\n'):
      width, height = struct.unpack_from('>II', data, 16)
      return height, width
    if data.startswith(b'BM'):
      kind = '<HH' if data[14:18] == b'\x0c\0\0\0' else '<ii'
      width, height = struct.unpack_from(kind, data, 18)
      return abs(height), abs(width)
  except struct.error as e:
    raise ValueError('a truncated image') from e
  if data[:4] == b'RIFF' and data[8:12] == b'WEBP':
    return 0, 0
  raise ValueError(f'not a {FORMATS} image')


def _orientation(data: bytes) -> int:
  """Returns how a JPEG is turned, by its EXIF; 1, upright, if it does not say."""
  try:
    with PIL.Image.open(io.BytesIO(data), formats=['JPEG', 'MPO']) as picture:
      return picture.getexif().get(stacks.ORIENTATION, 1)
  except Exception:  # Pillow raises errors of many kinds for damaged EXIF.
    return 1


def _decode_jpeg(data: bytes, colorspace: str) -> Picture:
  decode = functools.partial(
    simplejpeg.decode_jpeg,
    data,
    colorspace=colorspace,
    fastdct=True,
    fastupsample=False,
  )
  try:
    return decode()
  except ValueError as e:
    # TensorFlow only warns of these; it refuses truncated files too.
    if 'extraneous bytes' not in str(e):
      raise
    return decode(strict=False)
