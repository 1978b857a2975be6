"""DeiT, DeiT III and MAE of an installed timm, for random sizes, both ways."""

import live
import numpy as np
import pytest

from vit_jax import checkpoint
from vit_jax.weights import formats

torch = pytest.importorskip('torch')
timm = pytest.importorskip('timm')

ARCHITECTURES = {
  'deit_tiny_patch16_224': {},
  'deit_base_distilled_patch16_384': {},
  'deit3_small_patch16_224': {},
  'vit_large_patch16_224.mae': {'num_classes': 0},
}


def drawn(rng):
  heads, patch = int(rng.integers(1, 4)), rng.integers(2, 9, 2)
  size = patch * rng.integers(1, 5, 2)
  return {
    'embed_dim': heads * int(rng.integers(2, 12)),
    'num_heads': heads,
    'depth': int(rng.integers(1, 4)),
    'mlp_ratio': float(rng.choice([1, 2.5, 4])),
    'patch_size': patch.tolist(),
    'img_size': size.tolist(),
    'qkv_bias': bool(rng.integers(4)),
    'in_chans': int(rng.choice([1, 3])),
  }


@pytest.mark.parametrize('name', ARCHITECTURES)
@pytest.mark.parametrize('seed', range(20))
def test_random_models_equal_timm(tmp_path, name, seed):
  rng = np.random.default_rng(seed)
  arguments = drawn(rng)
  classes = {'num_classes': int(rng.integers(0, 5)), **ARCHITECTURES[name]}
  model = timm.create_model(name, **arguments, **classes)
  model = live.perturbed(model, seed)
  timm.models.save_for_hf(
    model, tmp_path / 'x', model_args=arguments, safe_serialization=True
  )
  images = live.random_images(
    seed, arguments['img_size'], arguments['in_chans']
  )
  with torch.no_grad():
    want = model(live.as_torch(images)).numpy()
  weights = checkpoint.read(tmp_path / 'x')
  got = live.output(weights, images)
  print(f'{name} {seed}: {np.abs(got - want).max():.1e}')
  np.testing.assert_allclose(got, want, atol=1e-5, rtol=1e-5)
  formats.convert(weights, str(tmp_path / 'y'), 'timm')
  live.assert_same_arrays(tmp_path / 'x', tmp_path / 'y')
  again = timm.create_model(f'local-dir:{tmp_path}/y', pretrained=True).eval()
  with torch.no_grad():
    np.testing.assert_array_equal(again(live.as_torch(images)).numpy(), want)
