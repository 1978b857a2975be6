"""Kernels are adapted to other channels and patches."""

import numpy as np

from vit_jax import checkpoint


def test_adapted_kernel_gives_same_output():
  kernel = np.random.RandomState(0).normal(size=(8, 8, 3, 5))
  pixels = np.random.RandomState(1).normal(size=(8, 8, 1))

  def response(kernel, pixels):
    return np.einsum('hwc,hwcd->d', pixels, kernel)

  rgb = response(kernel, np.repeat(pixels, 3, axis=2))
  for channels in ('sum', 'repeat'):
    for count in (1, 6) if channels == 'sum' else (6, 9):
      new = checkpoint.adapt_kernel(kernel, (8, 8, count, 5), channels)
      got = response(new, np.repeat(pixels, count, axis=2))
      np.testing.assert_allclose(got, rgb, atol=1e-9)
  repeated = checkpoint.adapt_kernel(kernel, (8, 8, 4, 5), 'repeat')
  np.testing.assert_allclose(repeated[:, :, 3], kernel[:, :, 0] * 3 / 4)

  for size in ((16, 16), (4, 8), (6, 11)):
    new = checkpoint.adapt_kernel(kernel, (*size, 3, 5), patches=True)
    even = response(new, np.ones((*size, 3)))
    np.testing.assert_allclose(even, response(kernel, np.ones((8, 8, 3))))
  new = checkpoint.adapt_kernel(kernel, (24, 8, 3, 5), patches=True)
  thirds = np.repeat(pixels, 3, axis=0)
  got = response(new, np.repeat(thirds, 3, axis=2))
  np.testing.assert_allclose(got, rgb, atol=1e-9)
