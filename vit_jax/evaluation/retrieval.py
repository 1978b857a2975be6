"""How well images find their texts, and texts their images."""

import functools
from typing import Any

import jax
from jaxtyping import Array, Float, Int
import numpy as np

from vit_jax import models
from vit_jax.evaluation import scores
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
  """Returns the loss of all pairs as one batch, and recall@1 and @5 both ways.

  An image whose caption other images share is found by any of these captions. Among
  equal similarities the first wins, so that equal embeddings find little.

  Embeddings have length 1; `out` has temperature `t` and bias `b` of
  `models.LitModel`.
  """
  _, ids = np.unique(tokens, axis=0, return_inverse=True)
  ids = ids.reshape(-1)
  to_text, to_text_loss = _search(zimg, ztxt, ids, out, loss)
  to_image, to_image_loss = _search(ztxt, zimg, ids, out, loss)
  return {
    scores.LOSS: (to_text_loss + to_image_loss) / 2,
    **to_text,
    scores.TO_IMAGE: to_image[scores.ACCURACY],
    scores.TO_IMAGE_TOP5: to_image[scores.TOP5],
  }


def _search(
  queries: Embeddings,
  keys: Embeddings,
  ids: Int[np.ndarray, ' N'],
  out: dict[str, Any],
  loss: str,
) -> tuple[dict[str, float], float]:
  """Returns recall@1 and @5 of the keys, and the mean loss."""
  on_device = jax.device_put(keys)
  size = min(_ROWS, len(keys))
  found, total = [], 0.0
  for start in range(0, len(keys), size):
    # The last rows repeat some before them, so that all have one shape.
    first = min(start, len(keys) - size)
    labels = np.arange(first, first + size)
    best, values = jax.device_get(
      _compare(queries[labels], labels, on_device, out, loss)
    )
    new = slice(start - first, None)
    found.append(best[new])
    total += float(values[new].sum(dtype=np.float64))
  hits = scores.hits(ids[np.concatenate(found)], ids)
  recalls = {name: float(right.mean()) for name, right in hits.items()}
  return recalls, total / len(keys)


@functools.partial(jax.jit, static_argnames='loss')
def _compare(
  rows: Array, labels: Array, keys: Array, out: dict[str, Array], loss: str
) -> tuple[Array, Array]:
  """Returns the best keys of each row, [B, K], and its loss, [B]."""
  logits = models.similarities(rows, keys, out)
  best = jax.lax.top_k(logits, min(5, len(keys)))[1]
  return best, losses.LOSSES[loss](logits, labels)
