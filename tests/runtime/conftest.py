"""Fixtures of tests that start processes."""

import pytest


@pytest.fixture(scope='module')
def quick_compilation():
  """Most of the time of these tests would be XLA's, optimising for seconds."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setenv('JAX_DISABLE_MOST_OPTIMIZATIONS', '1')
    yield
