"""How well images find their texts, and texts their images."""

import functools
from typing import Any

import jax
from jaxtyping import Array, Bool, Float, Int
import numpy as np

from vit_jax import models
from vit_jax.models import losses

Embeddings = Float[np.ndarray, 'N D']

# Images, or texts, that are compared with all others at a time.
_ROWS = 256


def retrieval(
  zimg: Embeddings,
  ztxt: Embeddings,
  tokens: Int[np.ndarray, 'N L'],
  out: dict[str, Any],
  loss: str,
) -> dict[str, float]:
  """Compares all images with all texts.

  Equal texts are one: an image whose caption another image has too is found by
  either of them. Among equal scores the first wins, so that embeddings that are
  all the same find little.

  Args:
    zimg: embeddings of images, of length 1.
    ztxt: those of their texts.
    tokens: of the texts.
    out: temperature `t` and bias `b`, as `models.LitModel` gives them.
    loss: name in `losses.LOSSES`.

  Returns:
    `loss_test` of all pairs as one batch, recall@1 from image to text
    (`accuracy_test`) and from text to image (`text_to_image_test`), and
    recall@5 (`top5_test`, `text_to_image_top5_test`).
  """
  _, ids = np.unique(tokens, axis=0, return_inverse=True)
  ids = ids.reshape(-1)
  to_text, to_text_loss = _search(zimg, ztxt, ids, out, loss)
  to_image, to_image_loss = _search(ztxt, zimg, ids, out, loss)
  return {
    'loss_test': (to_text_loss + to_image_loss) / 2,
    'accuracy_test': float(to_text[:, 0].mean()),
    'top5_test': float(to_text.any(axis=1).mean()),
    'text_to_image_test': float(to_image[:, 0].mean()),
    'text_to_image_top5_test': float(to_image.any(axis=1).mean()),
  }


def _search(
  queries: Embeddings,
  keys: Embeddings,
  ids: Int[np.ndarray, ' N'],
  out: dict[str, Any],
  loss: str,
) -> tuple[Bool[np.ndarray, 'N K'], float]:
  """Returns which of the K <= 5 best keys are right, and the mean loss."""
  keys = jax.device_put(keys)
  size = min(_ROWS, len(keys))
  right, total = [], 0.0
  for start in range(0, len(keys), size):
    # The last rows come with some before them, so that there is one shape.
    first = min(start, len(keys) - size)
    labels = np.arange(first, first + size)
    best, values = jax.device_get(
      _compare(queries[labels], labels, keys, out, loss)
    )
    new = slice(start - first, None)
    right.append((ids[best] == ids[labels][:, None])[new])
    total += float(values[new].sum(dtype=np.float64))
  return np.concatenate(right), total / len(keys)


@functools.partial(jax.jit, static_argnames='loss')
def _compare(
  rows: Array, labels: Array, keys: Array, out: dict[str, Array], loss: str
) -> tuple[Array, Array]:
  """Returns the best keys of each row, [B, K], and its loss, [B]."""
  logits = models.similarities(rows, keys, out)
  best = jax.lax.top_k(logits, min(5, len(keys)))[1]
  return best, losses.LOSSES[loss](logits, labels)
