"""The temperature of a classifier, fitted to images that it was not trained on."""

from jaxtyping import Float, Int
import numpy as np

_LOWEST, _HIGHEST = 0.05, 20.0


def fit(
  logits: Float[np.ndarray, 'N K'], labels: Int[np.ndarray, ' N']
) -> float:
  """Returns T > 0 with the smallest cross-entropy of softmax(logits / T).

  See arXiv:1706.04599, Sec. 4.2.
  """
  from scipy import optimize  # Imported late: these take a second.
  from scipy import special

  logits = logits.astype(float)
  rows = np.arange(len(labels))

  def cross_entropy(log_temperature: float) -> float:
    log_p = special.log_softmax(logits / np.exp(log_temperature), axis=1)
    return -log_p[rows, labels].mean()

  bounds = np.log(_LOWEST), np.log(_HIGHEST)
  found = optimize.minimize_scalar(
    cross_entropy, bounds=bounds, method='bounded'
  )
  return float(np.exp(found.x))
