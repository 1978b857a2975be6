"""Settings of images, `config.pp`: how they are read, cut and augmented."""

import difflib
from typing import Any

import ml_collections
from ml_collections.config_dict import placeholder

from vit_jax.runtime import errors

# By name: RandAugment's (number of operations, magnitude) and mixup's alpha
# (arXiv:2106.10270, Sec. 3).
AUGREG = {
  'none': ((), 0.0),
  'light1': ((2, 0), 0.0),  # Not nothing: see `data.randaugment`.
  'light2': ((2, 10), 0.2),
  'medium1': ((2, 15), 0.2),
  'medium2': ((2, 15), 0.5),
  'strong1': ((2, 20), 0.5),
  'strong2': ((2, 20), 0.8),
}

_MAX_MAGNITUDE = 30


def get_config() -> ml_collections.ConfigDict:
  """Returns every setting of images, and its default."""
  pp = ml_collections.ConfigDict()
  # Splits to train and to evaluate on, in TFDS notation: 'train[:98%]',
  # 'train+validation[:50%]'.
  pp.train = 'train'
  pp.test = 'test'
  # Number of training images of each class. None: all.
  pp.shots = placeholder(int)
  # Whether to train on each class as often as on the largest one.
  pp.balance_classes = False
  # Size of the model's input in pixels, an integer or (height, width). None: the
  # size of the pretrained weights.
  pp.crop = placeholder(object)
  # None: training crops a random area of each image. An integer: training resizes
  # each image to resize x resize and takes a random window of size `crop`.
  pp.resize = placeholder(int)
  # Smallest and largest share of the image that a random area takes.
  pp.crop_area = (0.05, 1.0)
  # Smallest and largest width / height of a random area.
  pp.crop_ratio = (0.75, 1.33)
  # Pixels that training adds on each side of resized images before it takes a
  # random window, instead of an area. Usually 4 for CIFAR at 32 px.
  pp.pad = 0
  # Value of these pixels: 'zeros' or 'reflect'.
  pp.pad_mode = 'zeros'
  # None: evaluation resizes whole images to `crop`. An integer: it resizes the
  # shorter side to this and takes the middle. (height, width): it resizes the
  # image to this and takes the middle.
  pp.resize_test = placeholder(object)
  # Whether to mirror half of the training images.
  pp.flip = True
  # An AugReg preset, 'none' or 'light1' to 'strong2', which sets `randaugment` and
  # `mixup` (arXiv:2106.10270). '': none.
  pp.augmentation = ''
  # RandAugment: (number of operations, magnitude), where 10 is the magnitude of
  # AutoAugment. (): none. None: the value of the preset.
  pp.randaugment = placeholder(tuple)
  # Colour jitter: (brightness, contrast, saturation, hue), as in torchvision.
  # (): none.
  pp.color_jitter = ()
  # Probability that a rectangle of a training image is replaced by noise.
  pp.random_erasing = 0.0
  # Alpha of mixup. 0: off. None: the value of the preset.
  pp.mixup = placeholder(float)
  # Alpha of CutMix. 0: off. With mixup, one of the two is drawn for each batch.
  pp.cutmix = 0.0
  # Mean and standard deviation of pixels in [0, 1], one value or one for each
  # channel: inputs are (pixel - mean) / std. None: the values of the pretrained
  # weights; without weights, 0.5.
  pp.mean = placeholder(tuple)
  pp.std = placeholder(tuple)
  # Channels of an image. 1 reads image files as grey. None: 3, or the number that
  # the data set has.
  pp.channels = placeholder(int)
  # Whether to rotate photographs by their EXIF tag. The official code does not.
  pp.exif = False
  return pp


def complete(pp: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
  """Returns settings of images with the default of each that is missing.

  Raises:
    errors.UserError: if there is one that nothing reads.
  """
  full = get_config()
  for name, value in pp.items():
    if name not in full:
      near = difflib.get_close_matches(name, full, 1)
      hint = f' Did you mean {near[0]!r}?' if near else ''
      raise errors.UserError(
        f'config.pp has {name!r}, which is not one of {", ".join(full)}.{hint}'
      )
    full[name] = value
  return full


def preset(name: str) -> dict[str, Any]:
  """Returns what an AugReg preset, '' for none, sets where it is not set."""
  ops, alpha = AUGREG[name or 'none']
  return {'pp.randaugment': ops, 'pp.mixup': alpha}


def mixes(pp: ml_collections.ConfigDict) -> bool:
  """Whether images of a batch are mixed, presets included."""
  alpha = preset(pp.augmentation)['pp.mixup'] if pp.mixup is None else pp.mixup
  return alpha > 0 or pp.cutmix > 0


def validate(
  pp: ml_collections.ConfigDict, *, has_weights: bool = False
) -> None:
  """Checks every setting of images.

  Args:
    pp: the settings.
    has_weights: whether weights will tell the size where `crop` is None; what
      depends on it is not checked until then.

  Raises:
    errors.UserError: with the setting, its value, and what it may be.
  """
  if pp.crop is not None or not has_weights:
    _validate_sizes(pp)
  _validate_augmentation(pp)
  if pp.shots is not None and pp.shots < 1:
    raise errors.UserError(
      f'config.pp.shots is {pp.shots}, must be at least 1 image of each class.'
    )
  if pp.channels not in (None, 1, 3):
    raise errors.UserError(
      f'config.pp.channels is {pp.channels}, must be 1 (grey) or 3 (RGB).'
    )
  if pp.std is not None and not all(value > 0 for value in pp.std):
    raise errors.UserError(
      f'config.pp.std is {pp.std}, must be greater than 0 in all channels.'
    )


def _size(value: Any) -> tuple[int, int] | None:
  """Returns (height, width), or None of what is no size."""
  pair = value if isinstance(value, tuple | list) else (value, value)
  is_size = len(pair) == 2 and all(isinstance(n, int) and n > 0 for n in pair)
  return tuple(pair) if is_size else None


def _validate_sizes(pp: ml_collections.ConfigDict) -> None:
  crop = _size(pp.crop)
  if not crop:
    raise errors.UserError(
      f'config.pp.crop is {pp.crop!r}, must be the size of the input in pixels:'
      f' an integer or (height, width).'
    )
  if pp.resize is not None and pp.resize < max(crop):
    raise errors.UserError(
      f'config.pp.resize is {pp.resize}, must be at least config.pp.crop,'
      f' {pp.crop}.'
    )
  _validate_windows(pp, crop)


def _validate_windows(
  pp: ml_collections.ConfigDict, crop: tuple[int, int]
) -> None:
  if len(pp.crop_area) != 2 or not 0 < pp.crop_area[0] <= pp.crop_area[1] <= 1:
    raise errors.UserError(
      f'config.pp.crop_area is {pp.crop_area}, must be two parts of the image'
      f' with 0 < smallest <= largest <= 1.'
    )
  if len(pp.crop_ratio) != 2 or not 0 < pp.crop_ratio[0] <= pp.crop_ratio[1]:
    raise errors.UserError(
      f'config.pp.crop_ratio is {pp.crop_ratio}, must be two numbers, width over'
      f' height, with 0 < smallest <= largest.'
    )
  if pp.pad_mode not in ('zeros', 'reflect'):
    raise errors.UserError(
      f"config.pp.pad_mode is {pp.pad_mode!r}, must be 'zeros' or 'reflect'."
    )
  if not 0 <= pp.pad < (pp.resize or min(crop)):
    raise errors.UserError(
      f'config.pp.pad is {pp.pad}, must be at least 0 and less than the image,'
      f' {pp.resize or min(crop)} pixels.'
    )
  if pp.resize_test is not None:
    size = _size(pp.resize_test)
    if not size or size[0] < crop[0] or size[1] < crop[1]:
      raise errors.UserError(
        f'config.pp.resize_test is {pp.resize_test!r}, must be an integer or'
        f' (height, width), at least config.pp.crop, {pp.crop}.'
      )


def _validate_augmentation(pp: ml_collections.ConfigDict) -> None:
  if pp.augmentation and pp.augmentation not in AUGREG:
    raise errors.UserError(
      f"config.pp.augmentation is {pp.augmentation!r}, must be '' or one of"
      f' {tuple(AUGREG)}.'
    )
  if pp.randaugment is not None and not _is_randaugment(pp.randaugment):
    raise errors.UserError(
      f'config.pp.randaugment is {pp.randaugment}, must be (number of operations,'
      f' magnitude from 0 to {_MAX_MAGNITUDE}), or () for none.'
    )
  for name, value in preset(pp.augmentation).items():
    own = pp[name.removeprefix('pp.')]
    own = tuple(own) if isinstance(own, list) else own
    if pp.augmentation and own not in (None, value):
      raise errors.UserError(
        f'config.{name} is {own}, {value} in config.pp.augmentation ='
        f' {pp.augmentation!r}. Set one of them.'
      )
  jitter = pp.color_jitter
  if jitter and not (
    len(jitter) == 4 and min(jitter) >= 0 and jitter[3] <= 0.5
  ):
    raise errors.UserError(
      f'config.pp.color_jitter is {jitter}, must be (brightness, contrast,'
      f' saturation, hue), from 0 on, hue to 0.5; or () for none.'
    )
  for name in ('random_erasing', 'mixup', 'cutmix'):
    value, high = pp[name], 1 if name == 'random_erasing' else float('inf')
    if value is not None and not 0 <= value <= high:
      raise errors.UserError(
        f'config.pp.{name} is {value}, must be'
        f' {"from 0 to 1" if high == 1 else "at least 0"}.'
      )


def _is_randaugment(value: Any) -> bool:
  if not len(value):
    return True
  is_pair = len(value) == 2 and isinstance(value[0], int)
  return is_pair and value[0] > 0 and 0 <= value[1] <= _MAX_MAGNITUDE
