"""Settings of images, `config.pp`: reading, cropping and augmentation."""

import math
import re
import types
from typing import Any

import ml_collections

from vit_jax.configs import rules
from vit_jax.runtime import errors

# By name: RandAugment's (number of operations, magnitude) and mixup's alpha
# (arXiv:2106.10270, Sec. 3).
AUGREG = {
  'none': ((), 0.0),
  'light1': ((2, 0), 0.0),  # Magnitude 0 still augments: `data.randaugment`.
  'light2': ((2, 10), 0.2),
  'medium1': ((2, 15), 0.2),
  'medium2': ((2, 15), 0.5),
  'strong1': ((2, 20), 0.5),
  'strong2': ((2, 20), 0.8),
}

INTERPOLATIONS = ('bilinear', 'bilinear_antialias', 'bicubic')

MOST_CHANNELS = 512  # Hyperspectral cameras have up to about 400.

_MAX_MAGNITUDE = 30

_SPLIT = re.compile(r'\w+(\[[^\[\]]*\])?(\+\w+(\[[^\[\]]*\])?)*')
_IS_SIZE = 'the size of the input in pixels: an integer or (height, width)'
_IS_SPLIT = "a split such as 'train[:98%]' or 'train+validation'"


def _size(value: Any) -> tuple[int, int] | None:
  """Returns (height, width), or None if the value is not a size."""
  pair = value if isinstance(value, tuple | list) else (value, value)
  is_size = len(pair) == 2 and all(isinstance(n, int) and n > 0 for n in pair)
  return tuple(pair) if is_size else None


def _is_randaugment(value: Any) -> bool:
  if not len(value):
    return True
  is_pair = len(value) == 2 and isinstance(value[0], int)
  return is_pair and value[0] > 0 and 0 <= value[1] <= _MAX_MAGNITUDE


def _is_jitter(value: Any) -> bool:
  return not value or (len(value) == 4 and min(value) >= 0 and value[3] <= 0.5)


def _is_range(value: Any, high: float = math.inf) -> bool:
  return len(value) == 2 and 0 < value[0] <= value[1] <= high


def get_config() -> ml_collections.ConfigDict:
  """Returns every setting of images, and its default."""
  return rules.new_config(declare())


def declare() -> types.SimpleNamespace:
  """Returns every setting of images, with the values that it may have."""
  pp = types.SimpleNamespace()
  # Splits to train and to evaluate on, in TFDS notation: 'train[:98%]',
  # 'train+validation[:50%]'.
  pp.train = rules.such('train', _SPLIT.fullmatch, _IS_SPLIT)
  pp.test = rules.such('test', _SPLIT.fullmatch, _IS_SPLIT)
  # Split that is neither trained on nor tested, such as 'train[90%:]'. For several
  # classes, each evaluation fits thresholds on it (those with the best F1); for one
  # class, the end of a run fits the temperature. '': none; thresholds of 0.5, or a
  # temperature of 1.
  pp.holdout = rules.such(
    '', lambda split: not split or _SPLIT.fullmatch(split), f"'' or {_IS_SPLIT}"
  )
  # Number of training images of each class. None: all.
  pp.shots = rules.number(None, low=1, kind=int)
  # Whether to train on each class as often as on the largest one.
  pp.balance_classes = False
  # Size of the model's input in pixels, an integer or (height, width). None: the
  # size of the pretrained weights.
  pp.crop = rules.such(None, _size, _IS_SIZE, kind=object)
  # None: training crops a random area of each image. An integer: training resizes
  # each image to resize x resize and takes a random window of size `crop`.
  pp.resize = rules.number(None, low=1, kind=int)
  # Smallest and largest share of the image that a random area takes.
  pp.crop_area = rules.such(
    (0.05, 1.0),
    lambda area: _is_range(area, 1),
    'two shares of the image with 0 < smallest <= largest <= 1',
  )
  # Smallest and largest width / height of a random area.
  pp.crop_ratio = rules.such(
    (0.75, 1.33),
    _is_range,
    'two numbers, width / height, with 0 < smallest <= largest',
  )
  # Pixels that training adds on each side of resized images before it takes a
  # random window, instead of an area. Usually 4 for CIFAR at 32 px.
  pp.pad = rules.number(0, low=0)
  # How the pixels that `pad` adds are filled.
  pp.pad_mode = rules.one_of('zeros', 'reflect')
  # None: evaluation resizes whole images to `crop`. An integer: it resizes the
  # shorter side to this and crops the centre. (height, width): it resizes the
  # image to this and crops the centre.
  pp.resize_test = rules.such(
    None, _size, 'an integer or (height, width)', kind=object
  )
  # How evaluation resizes: 'bilinear' as TensorFlow and the official code do;
  # 'bilinear_antialias' and 'bicubic' as Pillow does, which averages where it makes
  # an image smaller. None: the value of the pretrained weights; without weights,
  # 'bilinear'.
  pp.interpolation = rules.one_of(*INTERPOLATIONS, kind=str)
  _add_pixels(pp)
  _add_augmentation(pp)
  return pp


def _add_pixels(pp: types.SimpleNamespace) -> None:
  # Mean and standard deviation of pixels in [0, 1], one value or one for each
  # channel: inputs are (pixel - mean) / std. None: the values of the pretrained
  # weights; without weights, 0.5. For images of more than 8 bits or other channels
  # than 1 and 3, None measures them on the training images.
  pp.mean = rules.such(
    None, lambda mean: all(map(math.isfinite, mean)), 'finite', kind=tuple
  )
  pp.std = rules.such(
    None,
    lambda std: all(value > 0 for value in std),
    'greater than 0 in all channels',
    kind=tuple,
  )
  # Channels of an image. 1 reads pictures as grey; other numbers than 1 and 3 need
  # .npy files, TIFF stacks or arrays. None: those of the first image, 3 for pictures.
  pp.channels = rules.number(None, low=1, high=MOST_CHANNELS, kind=int)
  # Whether to rotate photographs by their EXIF tag. The official code does not.
  pp.exif = False


def _add_augmentation(pp: types.SimpleNamespace) -> None:
  # Whether to mirror half of the training images.
  pp.flip = True
  # An AugReg preset, 'none' or 'light1' to 'strong2', which sets `randaugment` and
  # `mixup` (arXiv:2106.10270). '': none.
  pp.augmentation = rules.one_of('', *AUGREG)
  # RandAugment: (number of operations, magnitude), where 10 is the magnitude of
  # AutoAugment. (): none. None: the value of the preset.
  pp.randaugment = rules.such(
    None,
    _is_randaugment,
    f'(number of operations, magnitude from 0 to {_MAX_MAGNITUDE}), or () for none',
    kind=tuple,
  )
  # Colour jitter: (brightness, contrast, saturation, hue), as in torchvision.
  # (): none.
  pp.color_jitter = rules.such(
    (),
    _is_jitter,
    '(brightness, contrast, saturation, hue), all at least 0 and hue at most 0.5,'
    ' or () for none',
  )
  # Probability that a rectangle of a training image is replaced by noise.
  pp.random_erasing = rules.number(0.0, low=0, high=1)
  # Alpha of mixup. 0: off. None: the value of the preset.
  pp.mixup = rules.number(None, low=0, kind=float)
  # Alpha of CutMix. 0: off. With mixup, one of the two is drawn for each batch.
  pp.cutmix = rules.number(0.0, low=0)


def complete(pp: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
  """Returns settings of images with defaults for the missing ones.

  Raises:
    errors.UserError: if one is unknown.
  """
  full = get_config()
  for name, value in pp.items():
    if name not in full:
      hint = errors.did_you_mean(name, full)
      raise errors.UserError(
        f'config.pp has {name!r}, which is not one of {", ".join(full)}.{hint}'
      )
    full[name] = value
  return full


def preset(name: str) -> dict[str, Any]:
  """Returns the settings of an AugReg preset, '' for none."""
  ops, alpha = AUGREG[name or 'none']
  return {'pp.randaugment': ops, 'pp.mixup': alpha}


def mixes(pp: ml_collections.ConfigDict) -> bool:
  """Whether images of a batch are mixed, presets included."""
  alpha = preset(pp.augmentation)['pp.mixup'] if pp.mixup is None else pp.mixup
  return alpha > 0 or pp.cutmix > 0


def fewest_in_a_part(pp: ml_collections.ConfigDict) -> int:
  """Returns how many images of a batch `accum_steps` must leave in a part."""
  return 2 if mixes(pp) else 1


def validate(
  pp: ml_collections.ConfigDict, *, has_weights: bool = False
) -> None:
  """Raises `errors.UserError` if settings of images do not fit each other.

  Each of them is valid. With `has_weights`, the weights will decide the size where
  `crop` is None, so that it cannot be checked yet.
  """
  _validate_augmentation(pp)
  if pp.crop is None and has_weights:
    return
  crop = _size(pp.crop)
  if not crop:
    raise errors.UserError(f'config.pp.crop is {pp.crop}, must be {_IS_SIZE}.')
  if pp.resize is not None and pp.resize < max(crop):
    raise errors.UserError(
      f'config.pp.resize is {pp.resize}, must be at least config.pp.crop,'
      f' {pp.crop}.'
    )
  if pp.pad >= (pp.resize or min(crop)):
    raise errors.UserError(
      f'config.pp.pad is {pp.pad}, must be less than the image,'
      f' {pp.resize or min(crop)} pixels.'
    )
  test = _size(pp.resize_test) or crop
  if test[0] < crop[0] or test[1] < crop[1]:
    raise errors.UserError(
      f'config.pp.resize_test is {pp.resize_test!r}, must be an integer or'
      f' (height, width), at least config.pp.crop, {pp.crop}.'
    )


def _validate_augmentation(pp: ml_collections.ConfigDict) -> None:
  for name, value in preset(pp.augmentation).items():
    own = pp[name.removeprefix('pp.')]
    own = tuple(own) if isinstance(own, list) else own
    if pp.augmentation and own not in (None, value):
      raise errors.UserError(
        f'config.{name} is {own}, {value} in config.pp.augmentation ='
        f' {pp.augmentation!r}. Set one of them.'
      )
