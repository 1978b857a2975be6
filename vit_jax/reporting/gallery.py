"""Images with their attention and a caption, for the pages."""

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cv2
from jaxtyping import Float
import numpy as np

from vit_jax import predictor as predictor_lib
from vit_jax.configs import labels as labels_lib
from vit_jax.data import sources
from vit_jax.data import subsets
from vit_jax.evaluation import multilabel
from vit_jax.evaluation import ranking
from vit_jax.reporting import attention_pictures
from vit_jax.weights import record as weights_lib

_EXAMPLES = 8  # Images shown under each title of a report.
_SIDE = 224  # Longer side of their pictures, in pixels.

# An image, its attention (empty if the model has none) and its caption.
Figure = dict[str, str]


def shown(
  predictor: predictor_lib.Predictor,
  source: sources.LabelledSource,
  places: np.ndarray,
  chosen: Mapping[str, np.ndarray],
  caption: Callable[[int], str],
) -> dict[str, list[Figure]]:
  """Returns pictures of the first images under each title, with attention.

  Args:
    predictor: the model.
    source: the images.
    places: indices in the source of the images that were predicted.
    chosen: indices in `places` by title, the ones to show first.
    caption: returns the caption of an index in `places`.
  """
  found = {}
  for title, order in chosen.items():
    if not len(order):
      continue
    order = order[:_EXAMPLES]
    captions = [caption(i) for i in order.tolist()]
    subset = subsets.Subset(source, places[order])
    found[title] = pictures(predictor, subset, captions)
  return found


def pictures(
  predictor: predictor_lib.Predictor, images: Any, captions: Sequence[str]
) -> list[Figure]:
  """Returns pictures of all images, which `Predictor` can decode."""
  shown = [
    attention_pictures.as_picture(x) for _, x in predictor.prepared(images)
  ]
  attention = [''] * len(shown)
  if predictor.weights.spec.num_heads:
    maps = zip(shown, predictor.rollout(images), strict=True)
    attention = [_data_uri(attention_pictures.on_image(*x)) for x in maps]
  return [
    {'image': _data_uri(image), 'attention': picture, 'caption': caption}
    for image, picture, caption in zip(shown, attention, captions, strict=True)
  ]


def unsure(row: np.ndarray, weights: weights_lib.Weights) -> str:
  """Returns what is predicted for an image, and what makes that unsure.

  That is the two most probable classes; or, where an image may have several, all that
  it has and the one nearest to its threshold.
  """
  names = weights.class_names
  if weights.task == labels_lib.MULTICLASS:
    best = ranking.best(row, names, top_k=2)
    return ', '.join(f'{name} {p:.1%}' for name, p in best)
  limits = multilabel.thresholds(weights)
  present = ', '.join(name for name, _ in ranking.present(row, names, limits))
  nearest = int(np.abs(row - np.asarray(limits)).argmin())
  return (
    f'{present or "no class"}; {names[nearest]} {row[nearest]:.1%},'
    f' threshold {limits[nearest]:.1%}'
  )


def _data_uri(image: Float[np.ndarray, 'H W 3']) -> str:
  height, width = image.shape[:2]
  scale = _SIDE / max(height, width)
  size = (max(1, round(width * scale)), max(1, round(height * scale)))
  small = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
  pixels = np.round(np.clip(small, 0, 1) * 255).astype(np.uint8)
  _, data = cv2.imencode('.jpg', pixels[..., ::-1])
  return f'data:image/jpeg;base64,{base64.b64encode(data.tobytes()).decode()}'
