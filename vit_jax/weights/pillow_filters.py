"""Which `interpolation` stands for a filter of Pillow, which PyTorch's libraries use."""

from absl import logging

# By Pillow's name.
_OURS = {'bilinear': 'bilinear_antialias', 'bicubic': 'bicubic'}

# The nearest of those for filters that there are not here.
_NEAREST = {
  'nearest': 'bilinear',
  'box': 'bilinear',
  'hamming': 'bilinear',
  'lanczos': 'bicubic',
}

# Pillow's numbers are the places.
_BY_NUMBER = ('nearest', 'lanczos', 'bilinear', 'bicubic', 'box', 'hamming')


def interpolation(pillow: str | int | None, model_name: str) -> str | None:
  """Returns the interpolation of a filter, by name or number; None if unknown.

  Warns of filters that there are not here.
  """
  if isinstance(pillow, int) and 0 <= pillow < len(_BY_NUMBER):
    pillow = _BY_NUMBER[pillow]
  if pillow in _NEAREST:
    logging.warning(
      '%s: images were resized by the filter %s, which is not supported: evaluation'
      ' takes %s.',
      *(model_name, pillow, _OURS[_NEAREST[pillow]]),
    )
    pillow = _NEAREST[pillow]
  return _OURS.get(str(pillow))


def name(interpolation: str) -> str:
  """Returns Pillow's name of the filter for an interpolation, or the nearest one."""
  return interpolation.removesuffix('_antialias')


def number(interpolation: str) -> int:
  """Returns Pillow's number of the filter for an interpolation, or the nearest one."""
  return _BY_NUMBER.index(name(interpolation))
