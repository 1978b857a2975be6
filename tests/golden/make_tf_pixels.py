"""Writes tf_pixels.npz: image files, and what TensorFlow makes of them.

pip install tensorflow-cpu==2.21.0 pillow
python tests/golden/make_tf_pixels.py
"""

import io
import pathlib

import numpy as np
from PIL import Image
import tensorflow as tf

_SIZE = (48, 31)  # Of the resized images, (height, width).


def files() -> dict[str, bytes]:
  """Returns images of 53 x 40 pixels in the formats that TensorFlow reads."""
  rng = np.random.RandomState(0)
  # Smooth enough for JPEG, and different in every corner.
  small = rng.randint(0, 256, (6, 8, 4), np.uint8)
  rgba = Image.fromarray(small, 'RGBA').resize((53, 40), Image.BICUBIC)
  rgb = rgba.convert('RGB')
  grey16 = np.asarray(rgb.convert('L')).astype(np.uint16) * 257
  exif = Image.Exif()
  exif[0x0112] = 6  # Orientation: to be turned by 90 degrees.
  images = {
    'rgb.jpg': (rgb, {'format': 'JPEG', 'quality': 90}),
    'rgb444.jpg': (rgb, {'format': 'JPEG', 'subsampling': 0}),
    'grey.jpg': (rgb.convert('L'), {'format': 'JPEG'}),
    'exif.jpg': (rgb, {'format': 'JPEG', 'exif': exif}),
    'cmyk.jpg': (rgb.convert('CMYK'), {'format': 'JPEG'}),
    'rgb.png': (rgb, {'format': 'PNG'}),
    'rgba.png': (rgba, {'format': 'PNG'}),
    'palette.png': (rgb.convert('P'), {'format': 'PNG'}),
    'grey16.png': (Image.fromarray(grey16), {'format': 'PNG'}),
    'rgb.bmp': (rgb, {'format': 'BMP'}),
  }
  result = {}
  for name, (image, options) in images.items():
    stream = io.BytesIO()
    image.save(stream, **options)
    result[name] = stream.getvalue()
  return result


def main() -> None:
  arrays = {}
  for name, data in files().items():
    pixels = tf.io.decode_image(data, channels=3, expand_animations=False)
    resized = tf.image.resize(pixels, _SIZE)
    arrays[f'file/{name}'] = np.frombuffer(data, np.uint8)
    arrays[f'decoded/{name}'] = pixels.numpy()
    arrays[f'resized/{name}'] = resized.numpy()
  path = pathlib.Path(__file__).with_name('tf_pixels.npz')
  np.savez_compressed(path, **arrays)


if __name__ == '__main__':
  main()
