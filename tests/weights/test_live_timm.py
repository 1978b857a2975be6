"""Random ViTs of timm, both ways. Runs only where PyTorch and timm are installed."""

import random
import re

import live
import numpy as np
import pytest

from vit_jax import checkpoint
from vit_jax.weights import adaptation
from vit_jax.weights import formats
from vit_jax.weights import infer
from vit_jax.weights import resized_positions
from vit_jax.weights import timm_architectures

torch = pytest.importorskip('torch')
timm = pytest.importorskip('timm')


def drawn(rng):
  """Returns an architecture and arguments."""
  heads, patch = rng.randint(1, 4), rng.choice([4, 8, [4, 8]])
  class_token = rng.random() < 0.6
  pool = rng.choice(['avg', 'map', 'token' if class_token else 'avg'])
  is_gated = pool != 'map' and rng.random() < 0.2
  if is_gated:
    architecture = 'vit_giant_patch14_dinov2'
  else:
    architecture = rng.choice(
      ['vit_base_patch16_224', 'vit_base_patch16_clip_224']
    )
  arguments = {
    'img_size': rng.choice([16, 24, [16, 32], [24, 16]]),
    'patch_size': patch,
    'in_chans': rng.choice([1, 3]),
    'embed_dim': heads * rng.choice([4, 8, 10]),
    'depth': rng.randint(1, 3),
    'num_heads': heads,
    'mlp_ratio': rng.choice([2, 3.5, 4]),
    'class_token': class_token,
    'global_pool': pool,
    'reg_tokens': rng.choice([0, 1, 3]),
    'no_embed_class': rng.random() < 0.5,
    'pre_norm': rng.random() < 0.3,
    'qkv_bias': rng.random() < 0.7,
    'init_values': rng.choice([None, 1e-5, 0.1]),
    'dynamic_img_size': rng.random() < 0.3,
    'num_classes': rng.choice([0, 5]),
  }
  if rng.random() < 0.4:
    arguments['fc_norm'] = rng.random() < 0.5
  if not is_gated and rng.random() < 0.6:
    arguments['act_layer'] = rng.choice(['gelu', 'gelu_tanh', 'quick_gelu'])
  return architecture, arguments


@pytest.mark.parametrize('seed', range(20))
def test_random_vits_equal_timm(tmp_path, seed):
  architecture, arguments = drawn(random.Random(seed))
  if arguments.pop('class_token') is False:
    arguments['class_token'] = False
  model = live.perturbed(timm.create_model(architecture, **arguments), seed)
  saved = {k: v for k, v in arguments.items() if k != 'num_classes'}
  timm.models.save_for_hf(
    model, tmp_path / 'x', model_args=saved, safe_serialization=True
  )
  weights = checkpoint.read(tmp_path / 'x')
  size = weights.image_shape[:2]
  images = live.random_images(seed, size, arguments['in_chans'])
  with torch.no_grad():
    want = model(live.as_torch(images)).numpy()
  got = live.output(weights, images)
  print('difference', seed, np.abs(got - want).max(), np.abs(want).max())
  np.testing.assert_allclose(got, want, atol=1e-5, rtol=1e-5)

  if arguments['dynamic_img_size'] and 'posemb_resize' in weights.model:
    larger = tuple(n + 8 for n in size)
    larger_images = live.random_images(seed, larger, arguments['in_chans'])
    with torch.no_grad():
      theirs = model(live.as_torch(larger_images)).numpy()
    ours = live.output(adaptation.at_size(weights, larger), larger_images)
    np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=1e-5)

  formats.convert(weights, str(tmp_path / 'y'), 'timm')
  live.assert_same_arrays(tmp_path / 'x', tmp_path / 'y')
  again = timm.create_model(f'local-dir:{tmp_path}/y', pretrained=True).eval()
  with torch.no_grad():
    back = again(live.as_torch(images)).numpy()
  np.testing.assert_array_equal(back, want)
  assert checkpoint.read(tmp_path / 'y').model == {
    **weights.model,
    'model_name': 'x',
  }


def test_implied_arguments_are_those_of_timm():
  """What names of released architectures imply is what timm builds for them."""
  for name in (*_models('vision_transformer'), *_models('deit')):
    if re.search('aimv2|beit3|_xp_|18x2|pwee', name):
      continue  # Their arrays are refused.
    with torch.device('meta'):
      model = timm.create_model(name, num_classes=0, depth=1)
    known = timm_architectures.arguments({'architecture': name})
    heads, width = model.blocks[0].attn.num_heads, model.embed_dim
    usual = known.get('num_heads') or infer.known_num_heads(
      width, has_config=False
    )
    assert usual == heads, name
    epsilon = known.get(
      timm_architectures.NORM_EPSILON, timm_architectures.EPSILON
    )
    assert epsilon == model.blocks[0].norm1.eps, name
    act = {'GELU': 'gelu', 'GELUTanh': 'gelu_tanh', 'QuickGELU': 'quick_gelu'}
    kind = type(model.blocks[0].mlp.act).__name__
    assert act.get(kind, 'gelu') == known.get('act_layer', 'gelu'), name
    includes = known.get('pool_include_prefix', False)
    assert model.pool_include_prefix == includes, name


def test_rotations_are_refused_but_those_of_dinov3():
  for name in _models('eva'):
    known = timm_architectures.arguments({'architecture': name})
    want = 'dinov3' if 'dinov3' in name else 'another'
    assert known.get('rope_type') == want, name


def _models(module):
  """Returns names of architectures, without hybrids."""
  names = timm.list_models(module=module)
  return [name for name in names if not re.search(r'_r\d*_s', name)]


def test_resizing_equals_pytorch():
  rng = random.Random(0)
  modes = {
    'bicubic': {'mode': 'bicubic'},
    'bicubic_antialias': {'mode': 'bicubic', 'antialias': True},
    'bilinear_antialias': {'mode': 'bilinear', 'antialias': True},
  }
  for seed in range(50):
    old = rng.randint(1, 20), rng.randint(1, 20)
    # PyTorch 2.13 is wrong where one column remains.
    new = rng.randint(1, 30), rng.randint(2, 30)
    x = np.random.default_rng(seed).normal(0, 0.1, (*old, 3))
    x = x.astype(np.float32)
    images = torch.tensor(x.transpose(2, 0, 1)[None])
    for method, mode in modes.items():
      want = torch.nn.functional.interpolate(images, size=new, **mode)[0]
      np.testing.assert_allclose(
        resized_positions.resize(x, new, method),
        want.numpy().transpose(1, 2, 0),
        atol=2e-6,
      )
