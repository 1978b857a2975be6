"""Mixup, CutMix and random erasing, by their formulas."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax.data.augmentation import mixing
from vit_jax.models import losses


def test_random_erasing_fills_rectangles_with_noise():
  images = jnp.full((400, 20, 30, 3), 9.0)
  erase = functools.partial(mixing.random_erasing, probability=0.25)
  got = jax.jit(erase)(jax.random.key(0), images)
  erased = np.asarray(got != 9)
  assert np.all(erased == erased[..., :1])
  count = 0
  noise = []
  for image, mask in zip(np.asarray(got), erased[..., 0], strict=True):
    if not mask.any():
      continue
    count += 1
    rows, columns = np.nonzero(mask)
    height, width = np.ptp(rows) + 1, np.ptp(columns) + 1
    assert len(rows) == height * width
    assert len(rows) <= 0.33 * 600 * 1.1  # Sides are rounded.
    noise.append(image[mask].ravel())
  assert 70 < count < 130
  noise = np.concatenate(noise)
  assert abs(noise.mean()) < 0.05
  assert noise.std() == pytest.approx(1, abs=0.05)
  # Up to the border on all sides.
  rows, columns = erased[..., 0].any(2), erased[..., 0].any(1)
  for lines in (rows, columns):
    assert np.any(lines[:, 0] & ~lines[:, -1])
    assert np.any(lines[:, -1] & ~lines[:, 0])


MIXES = {
  'mixup': mixing.Mix(5, mixup=0.8),
  'cutmix': mixing.Mix(5, cutmix=1.0),
  'both': mixing.Mix(5, mixup=0.8, cutmix=1.0),
}


def mix(name, seed):
  """Mixes images whose pixels are their number, and whose labels too."""
  images = np.ones((5, 12, 16, 3)) * np.arange(5.0)[:, None, None, None]
  labels = np.arange(5, dtype=np.int32)
  mixed, targets = jax.jit(MIXES[name])(
    jax.random.key(seed), images.astype(np.float32), labels
  )
  # Part of the image itself in each pixel; the others are of the one before.
  mixed, before = np.asarray(mixed), np.roll(images, 1, axis=0)
  own = (mixed - before) / (images - before)
  return own, np.asarray(targets)


@pytest.mark.parametrize('name', MIXES)
def test_targets_are_the_shares_of_pixels(name):
  kinds = set()
  for seed in range(20):
    own, targets = mix(name, seed)
    np.testing.assert_allclose(own, own[:1].repeat(5, 0), atol=1e-5)
    np.testing.assert_allclose(targets.sum(-1), 1, atol=1e-6)
    share = own.mean()
    want = share * np.eye(5) + (1 - share) * np.eye(5)[[4, 0, 1, 2, 3]]
    np.testing.assert_allclose(targets, want, atol=1e-5)
    is_cut = np.all((own < 1e-5) | (own > 1 - 1e-5))
    kinds.add('cutmix' if is_cut else 'mixup')
    if is_cut:
      rows, columns = np.nonzero(own[0, ..., 0] < 0.5)
      if len(rows):
        assert len(rows) == (np.ptp(rows) + 1) * (np.ptp(columns) + 1)
    else:
      assert 0.5 <= share <= 1
      np.testing.assert_allclose(own, share, atol=1e-5)
  assert kinds == ({'mixup', 'cutmix'} if name == 'both' else {name})


def test_shares_are_beta_distributed():
  keys = jax.random.split(jax.random.key(0), 2000)
  sample = lambda mix: np.asarray(
    jax.jit(jax.vmap(lambda key: mix.own(key, 96, 96).mean()))(keys)
  )
  # Of max(x, 1 - x), x uniform.
  share = sample(mixing.Mix(2, mixup=1.0))
  assert share.mean() == pytest.approx(0.75, abs=0.015)
  assert share.std() == pytest.approx(0.25 / 3**0.5, abs=0.01)
  # Alpha 0.2 mostly leaves images as they are.
  assert np.median(sample(mixing.Mix(2, mixup=0.2))) > 0.95
  # A side s = sqrt(x) around any centre has s - s^2 / 4 of its length inside.
  x = np.linspace(0, 1, 1001)
  cut = np.mean((np.sqrt(x) - x / 4) ** 2)
  share = sample(mixing.Mix(2, cutmix=1.0))
  assert share.mean() == pytest.approx(1 - cut, abs=0.02)


@pytest.mark.parametrize('loss', ['softmax', 'sigmoid'])
@pytest.mark.parametrize('smoothing', [0.0, 0.1])
def test_losses_of_shares_are_shares_of_losses(loss, smoothing):
  logits = np.random.RandomState(0).randn(4, 3).astype(np.float32)
  one, other = np.array([0, 1, 2, 0]), np.array([1, 1, 0, 2])
  targets = (0.7 * np.eye(3)[one] + 0.3 * np.eye(3)[other]).astype(np.float32)
  loss_fn = losses.LOSSES[loss]
  got = loss_fn(*map(jnp.asarray, (logits, targets)), smoothing)
  parts = [
    loss_fn(*map(jnp.asarray, (logits, x)), smoothing) for x in (one, other)
  ]
  np.testing.assert_allclose(got, 0.7 * parts[0] + 0.3 * parts[1], rtol=1e-5)
