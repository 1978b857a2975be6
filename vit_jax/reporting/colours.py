"""Images of any number of channels as pictures in colour."""

from jaxtyping import Float
import numpy as np

_SHOWN = 3
_PERCENTILES = (2, 98)  # Become black and white.
_OUTSIDE = 0.01  # Of [0, 1], by rounding.


def of_image(
  image: Float[np.ndarray, 'H W C'],
) -> Float[np.ndarray, 'H W 3']:
  """Returns an image, in which 1 is white, as colours in [0, 1].

  Pictures stay as they are. Of other numbers of channels than 1 and 3 the first three,
  or the first one, are shown; they, and values outside of [0, 1], are scaled, each
  channel from its 2nd to its 98th percentile.
  """
  channels = image.shape[-1]
  shown = image[..., : _SHOWN if channels >= _SHOWN else 1]
  is_inside = shown.min() >= -_OUTSIDE and shown.max() <= 1 + _OUTSIDE
  if note(channels) or not is_inside:
    low, high = np.percentile(shown, _PERCENTILES, axis=(0, 1))
    shown = (shown - low) / np.maximum(high - low, 1e-12)
  shown = np.clip(shown, 0, 1).astype(np.float32)
  return np.broadcast_to(shown, (*shown.shape[:2], _SHOWN)).copy()


def note(channels: int) -> str:
  """Returns what pictures of such images show; '' if that is all of them."""
  if channels in (1, _SHOWN):
    return ''
  which = f'channels 1, 2 and 3 of {channels} as red, green and blue'
  if channels < _SHOWN:
    which = f'channel 1 of {channels}'
  return f'Pictures show {which}, each scaled to its own range.'
